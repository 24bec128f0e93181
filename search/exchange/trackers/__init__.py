"""Experiment trackers: copies of a study, or of a training, that other tools show.

A tracker gets no events. It is shown a run as it stands, finds what its copy lacks, and writes that: so a
search that was killed, paused or retried leaves each curve once and complete. The study stays the only truth.
"""
