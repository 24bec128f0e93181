"""Objectives, which trials run: built-in ones, users' functions, and scripts in any language."""

from .base import Objective, ObjectiveError, Trial, TrialStopped, report

__all__ = ["Objective", "ObjectiveError", "Trial", "TrialStopped", "report"]
