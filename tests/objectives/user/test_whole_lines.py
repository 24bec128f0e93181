"""Programs write each line whole, and find their own `sitecustomize`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpsearch.objectives.user.whole_lines import with_whole_lines

PROGRAM = "import sys; print('epoch 1', 'loss 0.5'); print(int(sys.path[1].endswith('own')))"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes that keep writes apart")
def test_a_line_is_written_whole_and_the_path_is_as_without(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('its own')")
    reader, writer = os.pipe2(os.O_DIRECT)
    try:
        environment = with_whole_lines(os.environ | {"PYTHONPATH": str(own)})
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stdout=writer, check=True)
        assert [os.read(reader, 100) for _ in range(3)] == [b"its own\n", b"epoch 1 loss 0.5\n", b"1\n"]
    finally:
        os.close(reader)
        os.close(writer)
