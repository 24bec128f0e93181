"""What a trial runs: built-in objectives, users' functions, and scripts in any language."""

from .base import Objective, ObjectiveError, Trial, TrialStopped, report

__all__ = ["Objective", "ObjectiveError", "Trial", "TrialStopped", "report"]
