"""Weights & Biases, offline: each run is written whole when it ends, for `wandb sync` to upload.

Nothing shows an offline run before it is uploaded, so nothing is lost by writing it late, and a run is never
incomplete. No network is used, whether the user is logged in or not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import zlib
from pathlib import Path

from ....storage.files import write
from .base import TrackedRun, Tracker, near

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read on import, and by its service

import wandb

PROJECT = "hpsearch"
LONGEST_ID_PART = 60  # characters of each half of an id, which has room for 128
END_FILE = "hpsearch-ended"  # in the folder of a complete run


class WandB(Tracker):
    """A run for each trial, in a group for the study."""

    @property
    def folder(self) -> Path:
        """The folder in which W&B puts its runs."""
        return self.root / "wandb"

    @property
    def view(self) -> str:
        return f"wandb sync {shlex.quote(near(self.folder))}/offline-run-*-{_id(self.group)}-*"

    def write(self, run: TrackedRun) -> None:
        if not run.is_over:
            return
        name = f"{_id(self.group)}-{_id(run.name)}"
        folders = [*self.folder.glob(f"offline-run-????????_??????-{name}")]
        if any(_mark(folder) == run.mark for folder in folders):
            return
        for folder in folders:  # of an earlier end, or cut off by a kill
            shutil.rmtree(folder)
        self.root.mkdir(parents=True, exist_ok=True)
        if not os.access(self.root, os.R_OK | os.W_OK):  # W&B would silently write elsewhere
            raise PermissionError(f"cannot write into {self.root}")
        written = wandb.init(
            dir=self.root,
            mode="offline",
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=self.group,
            job_type="confirm" if "confirms" in run.about else "train",
            id=name,
            name=run.name,
            tags=[run.state, *(tag for tag in ("baseline", "confirms", "audited") if tag in run.about)],
            config={**run.parameters, "hpsearch": dict(run.about)},
            reinit="create_new",
            settings=wandb.Settings(  # nothing of this process: no output, code, hardware or commit
                console="off",
                silent=True,
                disable_code=True,
                disable_git=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        for report in run.reports:
            written.log(run.values(report), step=report.step)
        written.summary.update({"state": run.state})
        if run.value is not None:
            written.summary.update({f"final_{run.metric}": run.value})
        folder = Path(written.dir).parent
        written.finish(exit_code=1 if run.state == "fail" else 0)
        write(folder / END_FILE, run.mark)


def _id(text: str) -> str:
    """A text with characters allowed in an id, cut where it is long."""
    plain = re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)
    if len(plain) <= LONGEST_ID_PART:
        return plain
    return f"{plain[: LONGEST_ID_PART - 9]}-{zlib.crc32(text.encode()):08x}"


def _mark(folder: Path) -> str | None:
    path = folder / END_FILE
    return path.read_text(encoding="utf-8") if path.exists() else None
