"""What trials tell may be nothing that a database holds: that is their own trouble, and no other's."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search import open_study, run
from hpsearch.search.trials.events import events_of
from hpsearch.spaces import SpaceError

OBJECTIVE = Path(__file__).with_name("odd.py")
ODD: list[dict[str, Any]] = runpy.run_path(str(OBJECTIVE))["ODD"]
KEPT = "a\0b \\ud83e \x1b[2J"  # half a character, which nothing could write, is kept as its escape


@pytest.mark.parametrize("kind", ["function", pytest.param("script", marks=pytest.mark.any_backend)])
def test_what_the_database_would_refuse_fails_its_own_trial_alone(bench: Any, kind: str) -> None:
    """Before it comes there; steps of 32 bits are all that a server holds."""
    script = {"command": [sys.executable, str(OBJECTIVE)]}
    spec = bench.make_spec(
        objective=f"{OBJECTIVE}:odd" if kind == "function" else script,
        parameters={"x": {"min": 0.0, "max": 1.0}, "text": ["a\0b", "\N{DUCK}", "\x1b[2J"]},
        budget={"trials": len(ODD)},
        execution={"workers": 2, "retries": 0},
    )
    server = not bench.url.startswith("sqlite")
    bench.search(spec)
    large = "steps up to 2,147,483,647; report in a larger unit" if server else None
    reasons = {
        1: large,
        4: "the name of a metric has 501 letters",
        5: "holds NUL or half",
        6: "holds NUL or half",
    }
    if kind == "function":
        reasons |= dict.fromkeys((2, 3), "steps are whole numbers from 0 to 2^63 - 1")
        reasons |= {11: KEPT}
    found = bench.trials()
    assert [t.number for t in found] == list(range(len(ODD)))
    for trial in found:
        reason = reasons.get(trial.number)
        assert trial.state.name == ("COMPLETE" if reason is None else "FAIL"), trial.user_attrs
        assert (reason or "") in trial.user_attrs.get("reason", "")
        assert trial.intermediate_values[1] == 1.0, "what came before is kept"
    assert found[7].user_attrs["\N{DUCK}" * 500] == 1.0
    if kind == "function":
        assert [found[n].intermediate_values[2] for n in (9, 10)] == [5e-324, -1.7e308]
        assert KEPT in events_of(found[12], "steps")
    assert bench.search(spec).ran == 0, "the same command finds it finished"


@pytest.mark.postgres
def test_more_steps_than_the_database_can_store_are_refused_before_the_search(
    postgres: Any, make_spec: Any
) -> None:
    stopping = {"method": "asha", "min": 10, "max": 2**31}
    with pytest.raises(
        SpaceError, match=r"early_stopping.max: is 2,147,483,648, and this database holds steps up"
    ):
        run(make_spec(early_stopping=stopping, objective=f"{OBJECTIVE}:odd"), storage=postgres.database())


@pytest.mark.postgres
@pytest.mark.parametrize("workers", [1, 2])
def test_a_value_that_the_database_refuses_fails_the_trial_that_reported_it(
    postgres: Any, make_spec: Any, tmp_path: Path, recorder: Any, workers: int
) -> None:
    """One of another encoding has no duck, which is found as it is written."""
    name = f"latin_{workers}"
    postgres.execute(
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    spec = make_spec(
        objective=f"{OBJECTIVE}:odd", budget={"trials": 10}, execution={"workers": workers, "retries": 0}
    )
    watcher = recorder()
    where = {"storage": postgres.url(name), "runs": tmp_path / "runs"}
    result = run(spec, watcher=watcher, **where)
    states = [t.state.name for t in result.study.get_trials()]
    failed = result.study.get_trials()[7]
    assert failed.state.name == "FAIL"
    told = failed.user_attrs["reason"]
    assert told.startswith("the database refuses what it reported: 'latin-1' codec can't encode")
    assert failed.intermediate_values[1] == 1.0 and "\N{DUCK}" * 500 not in failed.user_attrs
    assert [states[n] for n in (0, 8, 9)] == ["COMPLETE"] * 3 and states.count("FAIL") == 7
    ended = [trial.number for trial in watcher.ended]
    assert sorted(ended) == list(range(10)), "each ends once"
    assert open_study("study", **where).study.get_trials()[7].state.name == "FAIL", "in the database too"
    assert run(spec, **where).ran == 0
