"""Why trials end whose actor is gone, for the study."""

from __future__ import annotations

import re
from pathlib import Path

from ray.tune.experiment import Trial

from ...engine.running import Failure
from ...trials.failures import MAX_CHARS, TRACEBACK_LINES


def failure_of(trial: Trial) -> Failure:
    """Why a trial of Tune's ended without a message of its worker."""
    path = trial.error_file
    text = Path(path).read_text(errors="replace") if path and Path(path).exists() else ""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # Ray colours its errors
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]  # the first line counts failures
    if not lines:
        return Failure("lost", f"Ray Tune ended the trial ({trial.status.lower()})")
    if "Traceback" in text or "creation task" in lines[0]:  # an error of ours in the actor, or in its start
        return Failure("error", lines[-1][:MAX_CHARS], "\n".join(text.splitlines()[-TRACEBACK_LINES:]))
    # Ray says it as an error of its own, or as an actor's death, whichever reaches the driver first.
    if "OutOfMemoryError" in text or "running low on memory" in text:
        return Failure("lost", "Ray killed the trial: its node ran out of memory")
    if "node has died" in text or "NodeDiedError" in text:
        return Failure("lost", "the node that ran the trial died")
    if "unavailable" in lines[0]:
        return Failure("lost", "the trial's Ray actor does not answer: its process or its node is gone")
    detail = next((line for line in lines if "exit detail" in line.lower()), lines[0])
    detail = (detail.partition("exit detail: ")[2] or detail).partition(" Some common causes")[0]  # advice
    return Failure("lost", f"the trial's Ray actor died: {detail}"[:MAX_CHARS])
