"""Notices: who wants to know is told when a study has finished, failed, or done something worth knowing.

A notifier gets no events. It looks at studies as they stand, finds what its targets were not told, notes that
in the study together with the notice, and sends the notice until its target accepts it. So a search that was
killed leaves what is still to be told to the next one, and nothing waits for a target.
"""
