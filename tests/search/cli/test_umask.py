"""Whose files they are is the umask's to say; what is temporary is nobody else's, and gone afterwards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SPACE = """\
version: 1
name: s
objective: "obj.py:train"
metric: loss
parameters:
  x: {min: 0.0, max: 1.0}
budget: {trials: 2}
execution: {workers: 1, retries: 0}
"""
OBJECTIVE = """\
import time
def train(trial):
    (trial.checkpoint / "model.txt").write_text("weights")
    trial.report(1.0, step=1)
    print("trained")
    return trial.params["x"]
"""
COMMANDS = """\
import os, signal, sys
from hpsearch.search.cli import main, printing
tell = printing.tell
# The dashboard listens: enough.
printing.tell = lambda line: os.kill(os.getpid(), signal.SIGINT) if "http:" in line else tell(line)
for line in sys.argv[1:]:
    sys.argv = ["hpsearch", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
"""


class Folder:
    """A user's folder, whose commands run, one after the other, under a umask and with a temporary folder of their own."""

    def __init__(self, path: Path, umask: int) -> None:
        self.path, self.umask, self.temporary = path / "work", umask, path / "tmp"
        self.path.mkdir()
        self.temporary.mkdir()
        (self.path / "s.yaml").write_text(SPACE)
        (self.path / "obj.py").write_text(OBJECTIVE)

    def start(self, *lines: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMANDS, *lines],
            cwd=self.path,
            umask=self.umask,
            env=os.environ | {"TMPDIR": str(self.temporary), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def made(self) -> Iterator[tuple[str, int, int]]:
        """Every file and folder that was made: its name, its rights, and those that the umask leaves."""
        for path in self.path.rglob("*"):
            if path.name not in ("s.yaml", "obj.py"):
                whole = 0o777 if path.is_dir() else 0o666
                yield str(path), stat.S_IMODE(path.stat().st_mode), whole & ~self.umask


@pytest.mark.parametrize("umask", [0o077, 0o002], ids=oct)
def test_everything_is_made_by_the_umask(tmp_path: Path, umask: int) -> None:
    folder = Folder(tmp_path, umask)
    process = folder.start(
        "run s.yaml --plain",
        "dashboard --port 0",
        "export s -o best.yaml",
        "train best.yaml",
        "schema -o schema.json",
    )
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    made = list(folder.made())
    assert {Path(name).name for name, *_ in made} >= {
        "hpsearch.db", "runs", "model.txt", "metrics.jsonl", "output.log", "config.json",
        "best.yaml", "trained", "config.yaml", "summary.json", "schema.json",
    }  # fmt: skip
    assert [(name, oct(mode)) for name, mode, wanted in made if mode != wanted] == []
    assert list(folder.temporary.iterdir()) == []


def open_to_others(roots: list[Path]) -> Iterator[Path]:
    """What somebody else may write below these folders, where they let others in at all."""
    for root in roots:
        with suppress(OSError):  # gone meanwhile
            mode = root.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            if mode & stat.S_IWOTH:
                yield root
            if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
                yield from open_to_others(list(root.iterdir()))


@pytest.mark.ray
@pytest.mark.slow
def test_on_ray_too_and_no_other_user_writes_its_temporary_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 0o002)
    (folder.path / "obj.py").write_text(OBJECTIVE.replace("    print", "    time.sleep(1)\n    print"))
    process = folder.start("run s.yaml --plain --backend ray")
    seen: set[Path] = set()
    found: set[Path] = set()
    ended = threading.Event()

    def watch() -> None:
        # Ray's sockets need a short path: the folder may be in /tmp, whatever TMPDIR says.
        while not ended.wait(0.2):
            ours = [
                p for root in (folder.temporary, Path("/tmp")) for p in root.glob(f"hpsearch-{process.pid}-*")
            ]
            seen.update(ours)
            found.update(open_to_others(ours))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        output, _ = process.communicate(timeout=240)
    finally:
        ended.set()
        watching.join()
    assert process.returncode == 0, output
    assert seen and found == set()
    assert [path for path in seen if path.exists()] == [] and list(folder.temporary.iterdir()) == []
    assert [(name, oct(mode)) for name, mode, wanted in folder.made() if mode != wanted] == []
