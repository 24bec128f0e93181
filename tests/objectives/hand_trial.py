"""A trial as a backend makes it, without a search behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpsearch.objectives.base import TrialStopped


class HandTrial:
    """Goes on from what its folder has; `stop_at` ends it with that report."""

    number = 0

    def __init__(
        self, params: dict[str, Any], folder: Path, stop_at: int | None = None, seed: int = 7
    ) -> None:
        self.params = params
        self.seed = seed
        self.checkpoint = folder
        self.resume_from = folder if folder.exists() else None
        folder.mkdir(parents=True, exist_ok=True)
        self.reports: list[tuple[int, float]] = []
        self.metrics: list[dict[str, float]] = []
        self.trained = self.reported = 0
        self.last_value: float | None = None
        self._stop_at = stop_at

    def remark(self, kind: str, text: str) -> None:
        raise AssertionError(text)

    def set_attribute(self, name: str, value: Any) -> None:
        raise AssertionError(name)

    def report(self, value: float, step: int, **metrics: float) -> None:
        assert not self.reports or step > self.reports[-1][0]
        self.reports.append((step, value))
        self.metrics.append(metrics)
        if step == self._stop_at:
            raise TrialStopped
