"""The page of the service, as a newcomer follows it: its files are written, its commands run in one shell."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ...support.remote import wait_for

PAGE = Path(__file__).parents[3] / "docs/service.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_page_runs_as_printed(tmp_path: Path) -> None:
    """But for the port, which may be in use here."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "HPSEARCH_HOME": str(tmp_path / "home")
    }  # fmt: skip
    (_, serve), *blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert serve == "hpsearch serve\n"
    words = [str(bin_folder / "hpsearch"), "serve", "--port", "0"]
    with (
        (tmp_path / "serve.log").open("w") as log,
        subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=log) as server,
    ):
        try:
            link: Path = wait_for(lambda: next((tmp_path / "home").glob("serve-*.json"), None))
            port = link.stem.removeprefix("serve-")
            script = "set -eu\n"
            for kind, content in blocks:
                text = content.replace("8765", port)
                if named := re.match(r"# file: (\S+)\n", text):
                    (tmp_path / named[1]).write_text(text)
                else:
                    assert kind == "sh", f"a block that nothing uses:\n{content}"
                    script += text
            ran = subprocess.run(
                ["sh", "-c", script],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=280,
            )
        finally:
            server.send_signal(signal.SIGTERM)
            ended = server.wait(30)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ended == 0
    assert '"name":"lora_quick"' in ran.stdout
    with zipfile.ZipFile(tmp_path / "winner.zip") as winner:
        assert "config.yaml" in winner.namelist()
    *_, last = [line for line in ran.stdout.splitlines() if line.strip()]
    assert last.split()[0] == "3" and "complete" in last, "the fourth trial was trained by the shell"
