"""Experiment trackers: copies of a study, or of a training, that other tools show.

A tracker is told no events. It is shown a run as it stands, finds what it lacks, and writes that: so a search
that was killed, paused or tried again leaves each curve once and whole. The study stays the only truth.
"""
