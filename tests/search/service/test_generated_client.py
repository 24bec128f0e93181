"""A client that another tool generates from the committed description works with a server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ...support.online import serving
from ...support.serving import searched

DESCRIPTION = Path(__file__).parents[3] / "docs" / "openapi.json"
USE = """
import json, sys
from generated import AuthenticatedClient
from generated.api.studies import list_, show
from generated.api.trials import show_trial, trials
from generated.api.winner import winner

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True)
(listed,) = list_.sync(client=client)
shown = show.sync(listed.name, client=client)
rows = trials.sync(listed.name, client=client)
best = winner.sync(listed.name, client=client)
trial = show_trial.sync(listed.name, best.trial, client=client)
missing = show.sync_detailed("nothing", client=client).parsed
print(json.dumps([listed.name, shown.states.to_dict(), [row.number for row in rows], best.status, trial.state, missing.status]))
"""


@pytest.mark.slow
@pytest.mark.extras
def test_a_generated_client_reads_a_study(tmp_path: Path) -> None:
    generator = shutil.which("openapi-python-client")
    if generator is None:
        pytest.skip("openapi-python-client is not there: .ci/extras installs it")
    settings = {  # it knows no zip
        "package_name_override": "generated",
        "content_type_overrides": {"application/zip": "application/octet-stream"},
        "post_hooks": [],
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    made = subprocess.run(
        [
            *(generator, "generate", "--fail-on-warning", "--path", str(DESCRIPTION)),
            *("--config", f"{tmp_path}/config.json", "--output-path", f"{tmp_path}/client"),
        ],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    with serving(searched(tmp_path), tmp_path) as served:
        used = subprocess.run(
            [Path(generator).with_name("python"), "-c", USE, served.url, served.token("read")],
            cwd=tmp_path / "client",
            capture_output=True,
            text=True,
        )
    assert used.returncode == 0, used.stderr
    name, states, numbers, status, state, missing = json.loads(used.stdout)
    assert (name, states, numbers) == ("curve", {"complete": 3, "fail": 1}, [0, 1, 2, 3])
    assert (status, state, missing) == ("unconfirmed", "complete", 404)
