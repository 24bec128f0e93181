"""The contract of a backend and a database: the same trials, ends and rows, whatever runs and holds them.

Everything is real: worker processes, signals, and databases that are read back with plain Optuna.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import optuna
import psutil
import pytest
import sqlalchemy

from hpsearch.search.backends.worker import process
from hpsearch.search.engine import clock
from hpsearch.search.engine.driver import Driver
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.scheduling.audit import AuditSample
from hpsearch.search.trials.events import events_of
from hpsearch.search.trials.export import document
from hpsearch.search.trials.records import usage_of
from hpsearch.storage import StorageError
from hpsearch.storage.trial_attrs import TOOK

from ...support.in_process import InProcessBackend

HYPERBAND = {"method": "hyperband", "min": 1, "max": 9, "eta": 3}
PRUNE_ALL = {"method": "threshold", "upper": 0.0, "max": 9}
TWO_WORKERS = {"workers": 2, "retries": 0}


def each_of(bench: Any, function: str, name: str, values: list[str], retries: int = 0) -> Any:
    """A search whose trials have these values of a parameter, in this order."""
    fields = {"parameters": {name: values}, "search": {"sampler": "grid"}, "budget": {"trials": len(values)}}
    return bench.search(function, **fields, execution={"workers": 1, "retries": retries})


def running_processes() -> set[int]:
    """The processes that have not ended; nobody may wait for those that have lost their parent."""
    processes = psutil.process_iter(["status"])
    return {process.pid for process in processes if process.info["status"] != psutil.STATUS_ZOMBIE}


@pytest.mark.pair
def test_the_budget_is_exact_and_plain_optuna_reads_what_the_objectives_reported(bench: Any) -> None:
    result = bench.search(budget={"trials": 7}, execution=TWO_WORKERS)
    trials = bench.trials()
    assert [t.number for t in trials] == list(range(7))
    assert {t.state.name for t in trials} == {"COMPLETE"}
    for trial in trials:
        reported = {n["step"]: n["value"] for n in bench.notes(trial.number)}
        assert trial.intermediate_values == reported
        assert list(reported) == list(range(1, 10))
        assert trial.value == trial.params["x"]
        assert trial.user_attrs["half"] == pytest.approx(reported[9] / 2)
        used = usage_of(trial)
        assert used is not None and used.seconds and used.machine_seconds and used.gpu_seconds == 0
        assert used.seconds >= trial.system_attrs[TOOK]
    assert result.best.value == min(t.value for t in trials)
    assert result.best.params == {"x": result.best.value, "folder": str(bench.folder)}
    assert result.stop_reason is None
    assert not result.interrupted


@pytest.mark.any_storage
def test_a_pruned_trial_says_at_which_rung_and_rank_of_which_bracket(bench: Any) -> None:
    bench.search(budget={"trials": 14}, early_stopping=HYPERBAND, execution=TWO_WORKERS)
    trials = bench.trials()
    pruned = [t for t in trials if t.state.name == "PRUNED"]
    assert pruned and len(trials) == 14
    for trial in trials:
        steps = list(trial.intermediate_values)
        assert steps == list(range(1, len(steps) + 1)), "steps rise, and none comes after a stop"
    for trial in pruned:
        assert trial.last_step in (1, 3), "a rung, and never the last step"
        assert trial.value == trial.intermediate_values[trial.last_step]
        at = f"step {trial.last_step}"
        pattern = (
            rf"pruned at {at}: rung \d of \d in bracket \d, "
            r"ranked (\d+) of (\d+); one in 3 continues"
        )
        found = re.fullmatch(pattern, trial.user_attrs["reason"])
        assert found, trial.user_attrs["reason"]
        assert 1 <= int(found[1]) <= int(found[2])


@pytest.mark.any_storage
def test_a_trial_paused_at_a_rung_resumes_there_and_trains_no_step_twice(bench: Any) -> None:
    stopping = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}
    bench.search("swift", budget={"trials": 12}, early_stopping=stopping, execution=TWO_WORKERS)
    trials = bench.trials()
    assert len(trials) == 12 and {t.state.name for t in trials} == {"COMPLETE", "PRUNED"}
    best = min(trials, key=lambda t: t.params["x"])
    assert best.state.name == "COMPLETE"
    for trial in trials:
        notes = bench.notes(trial.number)
        trained = [note["step"] for note in notes if "step" in note]
        assert trained == list(range(1, trial.last_step + 1)) == sorted(trial.intermediate_values)
        begins = [note["begins"] for note in notes if "begins" in note]
        assert begins[0] == 0 and set(begins) <= {0, 1, 3}
        assert "paused" not in trial.user_attrs
        if trial.state.name == "PRUNED":
            assert trial.last_step in (1, 3)
            reason = rf"paused at step {trial.last_step}: ranked \d+ of \d+; one in 3 is promoted, so far \d+ of \d+"
            assert re.fullmatch(reason, trial.user_attrs["reason"])
            assert events_of(trial, "steps")[-1].startswith(f"paused at step {trial.last_step},")
    assert any(len([note for note in bench.notes(t.number) if "begins" in note]) > 1 for t in trials), (
        "some were taken up"
    )


@pytest.mark.any_storage
@pytest.mark.parametrize("kind", [pytest.param("stopping", marks=pytest.mark.any_backend), "promotion"])
def test_an_audited_trial_trains_to_its_end_and_no_step_twice(bench: Any, kind: str) -> None:
    stopping = {"method": "asha", "type": kind, "min": 1, "max": 9, "eta": 3}
    spec = bench.spec("swift", budget={"trials": 9}, early_stopping=stopping, audit=1.0)
    result = bench.search(spec.override(execution=TWO_WORKERS))
    trials = bench.trials()
    audited = {t.number: t.user_attrs["audited"] for t in trials if "audited" in t.user_attrs}
    assert audited and set(audited) <= {n for n in range(9) if n in AuditSample.of(spec)}
    assert result.audited.ended == len(audited)
    for trial in trials:
        trained = [note["step"] for note in bench.notes(trial.number) if "step" in note]
        assert trained == list(range(1, trial.last_step + 1)) == sorted(trial.intermediate_values)
        if trial.number in audited:
            assert trial.state.name == "COMPLETE" and audited[trial.number] in (1, 3)
            told = rf"drawn for the audit.* (pruned|paused) at step {audited[trial.number]}:.*"
            assert re.fullmatch(told, events_of(trial, "steps")[-1])
            rungs = [key for key in trial.system_attrs if key.startswith("completed_rung_")]
            assert len(rungs) == (1, 3).index(audited[trial.number]) + 1, "it takes a place at no other"


@pytest.mark.any_backend
@pytest.mark.any_storage
def test_the_last_step_is_never_pruned(bench: Any) -> None:
    stopping = PRUNE_ALL | {"n_warmup_steps": 9}
    bench.search(budget={"trials": 2}, early_stopping=stopping)
    assert bench.states() == ["COMPLETE"] * 2, "the threshold looks from step 9 on, and that is the last"
    bench.search(name="other", budget={"trials": 2}, early_stopping=stopping | {"max": 10})
    assert [t.last_step for t in bench.trials("other")] == [9, 9]
    assert {t.state.name for t in bench.trials("other")} == {"PRUNED"}


@pytest.mark.in_process
@pytest.mark.any_storage
def test_the_baseline_is_trial_0_and_runs_to_its_end(bench: Any) -> None:
    result = bench.search(budget={"trials": 3}, early_stopping=PRUNE_ALL, baseline={"x": 0.25})
    assert bench.states() == ["COMPLETE", "PRUNED", "PRUNED"]
    assert bench.trials()[0].params == {"x": 0.25}
    assert result.best.number == 0
    assert [t.user_attrs.get("reason") for t in bench.trials()] == [
        None,
        "pruned by threshold at step 1",
        "pruned by threshold at step 1",
    ]


def test_an_objective_that_raises_fails_alone(bench: Any) -> None:
    bench.search("trial_one_fails", execution={"workers": 1, "retries": 2})
    assert bench.states() == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    failed = bench.trials()[1]
    assert failed.user_attrs["error"] == failed.user_attrs["reason"] == "ValueError: bad luck"
    assert 'raise ValueError("bad luck' in failed.user_attrs["traceback"]
    assert failed.intermediate_values == {1: 1.0}
    assert len(bench.notes(1)) == 3, "two retries, under the same number"
    assert len(bench.notes(0)) == 1


@pytest.mark.any_storage
def test_a_retry_resumes_from_the_checkpoint_of_the_same_trial(bench: Any) -> None:
    bench.search("flaky", budget={"trials": 2}, execution={"workers": 1, "retries": 1})
    assert bench.states() == ["COMPLETE", "COMPLETE"]
    for trial in bench.trials():
        first, second = bench.notes(trial.number)
        assert (first["resumed"], second["resumed"]) == (False, True)
        assert (first["x"], first["seed"]) == (second["x"], second["seed"])
        assert trial.intermediate_values == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
        assert trial.user_attrs["retries"] == 1


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.any_backend)])
def test_each_attempt_gets_a_fresh_process_where_the_space_says_so(bench: Any, ranks: int) -> None:
    execution = {"workers": 1, "retries": 1, "fresh_process": True, "processes_per_trial": ranks}
    bench.search("leaves_state", budget={"trials": 4}, execution=execution, confirm={"top": 0})
    assert bench.states() == ["COMPLETE"] * 4
    notes = [note for number in range(4) for note in bench.notes(number)]
    assert len(notes) == 5 * ranks, "one attempt more than trials"
    assert {note["begun"] for note in notes} == {1}
    assert len({note["pid"] for note in notes}) == 5 * ranks
    assert not {note["pid"] for note in notes} & running_processes()


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
def test_a_paused_trial_resumes_in_a_fresh_process(bench: Any) -> None:
    promotion = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 2}
    execution = {"workers": 1, "fresh_process": True}
    bench.search("swift", budget={"trials": 6}, early_stopping=promotion, execution=execution)
    assert all(trial.state.is_finished() for trial in bench.trials())
    attempts = [n["begins"] for t in bench.trials() for n in bench.notes(t.number) if "begins" in n]
    assert any(attempts), "one was promoted after a pause"
    for trial in bench.trials():
        steps = [note["step"] for note in bench.notes(trial.number) if "step" in note]
        assert steps == list(range(1, len(steps) + 1))


@pytest.mark.any_storage
@pytest.mark.parametrize("function", ["reports_on", "raises_on"])
def test_nothing_is_recorded_after_a_stop(bench: Any, function: str) -> None:
    bench.search(function, budget={"trials": 3}, early_stopping=PRUNE_ALL)
    assert bench.states() == ["PRUNED"] * 3
    for trial in bench.trials():
        assert trial.intermediate_values == {1: 1.0}
        assert trial.value == 1.0
        assert "error" not in trial.user_attrs
    if function == "reports_on":
        assert {n["caught"] for n in bench.notes(0)} == {"TrialStopped"}


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
def test_an_objective_that_is_slow_to_leave_does_not_fail_the_next_trial(bench: Any) -> None:
    bench.search(
        "slow_to_leave",
        budget={"trials": 3},
        early_stopping=PRUNE_ALL,
        execution={"workers": 1, "retries": 0},
    )
    assert bench.states() == ["PRUNED"] * 3
    notes = [bench.notes(n) for n in range(3)]
    assert all(note[-1] == {"left": True} for note in notes), "to its last line"
    assert len({note[0]["pid"] for note in notes}) == 1, "in one process"


SCRIPT = """\
import json, os
print(json.dumps({"step": 1, "other" if os.environ["HPSEARCH_TRIAL"] == "1" else "loss": 1.0}))
"""


@pytest.mark.any_backend
@pytest.mark.any_storage
def test_a_script_that_reports_another_metric_fails_its_trial_and_no_other(bench: Any) -> None:
    bench.folder.joinpath("script.py").write_text(SCRIPT)
    words = ["python", str(bench.folder / "script.py")]
    bench.search(
        bench.spec(budget={"trials": 3}, execution={"workers": 1, "retries": 0}).override(
            objective={"command": words}
        )
    )
    assert bench.states() == ["COMPLETE", "FAIL", "COMPLETE"]
    assert 'ended without reporting "loss"' in bench.trials()[1].user_attrs["error"]


@pytest.mark.any_storage
def test_an_objective_that_keeps_its_stop_and_never_returns_does_not_hold_the_search(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS", 0.3)
    bench.search("endless", budget={"trials": 3}, early_stopping=PRUNE_ALL | {"upper": 0.9})
    assert bench.states() == ["COMPLETE", "PRUNED", "COMPLETE"]


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.any_storage
def test_a_thread_that_outlives_its_objective_does_not_harm_the_search(bench: Any, recorder: Any) -> None:
    """One worker is done with trial 0 and idle, the other is still busy, when the thread reports."""
    bench.search("leaves_a_thread", budget={"trials": 2}, execution=TWO_WORKERS)
    assert bench.states() == ["COMPLETE", "COMPLETE"]
    assert bench.trials()[0].intermediate_values == {1: 1.0}


@pytest.mark.any_backend
@pytest.mark.any_storage
def test_an_objective_that_forks_harms_no_trial_after_it(bench: Any) -> None:
    bench.search("forks", budget={"trials": 4}, execution={"workers": 1, "retries": 0})
    assert bench.states() == ["COMPLETE"] * 4
    for trial in bench.trials()[1:]:
        assert trial.intermediate_values == {1: 1.0, 2: 0.5, 3: 1 / 3}


@pytest.mark.own_workers
@pytest.mark.any_storage
def test_what_an_objective_started_ends_with_the_search(bench: Any, command: Any) -> None:
    search = command("leaves_a_program", budget={"trials": 2}, execution={"workers": 1})
    output, _ = search.start().communicate(timeout=120)
    assert bench.states() == ["COMPLETE"] * 2, output
    programs = [bench.notes(number)[0]["pid"] for number in range(2)]
    search.wait_for(lambda: not any(map(psutil.pid_exists, programs)))


@pytest.mark.any_storage
def test_an_objective_that_stops_itself_fails(bench: Any) -> None:
    with pytest.raises(SearchError, match="TrialStopped"):
        bench.search("stops_itself", budget={"trials": 3})
    assert bench.states() == ["FAIL"] * 3


def test_a_value_that_is_no_number_ends_a_trial_as_infeasible(bench: Any) -> None:
    wrong = ["report nan", "report inf", "report -inf", "return nan", "return -inf"]
    result = each_of(bench, "unusable", "how", [*wrong, "return 0.5"])
    assert bench.states() == ["PRUNED"] * 5 + ["COMPLETE"]
    for how, trial in zip(wrong, bench.trials(), strict=False):
        assert trial.intermediate_values == {1: 0.5}
        assert trial.user_attrs["reason"].startswith("diverged: ")
        assert how.split()[1] in trial.user_attrs["reason"]
        assert trial.constraints["diverged"] == 1.0
        assert trial.system_attrs["constraints"] == [1.0], "the older list, which optuna-dashboard reads"
    assert result.best.number == 5


@pytest.mark.any_storage
@pytest.mark.any_backend
@pytest.mark.slow
def test_running_out_of_memory_ends_a_trial_as_infeasible(bench: Any) -> None:
    each_of(bench, "unusable", "how", ["MemoryError", "torch", "return 0.5"], retries=1)
    assert bench.states() == ["PRUNED", "PRUNED", "COMPLETE"]
    for trial in bench.trials()[:2]:
        assert trial.user_attrs["reason"].startswith("out of memory: ")
        assert trial.constraints["out_of_memory"] == 1.0
        assert trial.system_attrs["constraints"] == [1.0]
        assert "retries" not in trial.user_attrs


@pytest.mark.slow
@pytest.mark.any_storage
def test_a_lost_worker_costs_its_trial_an_attempt_and_no_other_trial_anything(bench: Any) -> None:
    said = {
        "exit": "exited with code 3 in the middle",
        "SIGKILL": "killed by SIGKILL",
        "SIGTERM": "killed by SIGTERM",
        "segfault": "killed by SIGSEGV",
    }
    each_of(bench, "lost", "how", ["1", *said, "2"], retries=1)
    assert bench.states() == ["COMPLETE", *["FAIL"] * 4, "COMPLETE"]
    for trial in bench.trials()[1:5]:
        assert said[trial.params["how"]] in trial.user_attrs["error"]
        assert trial.intermediate_values == {1: 1.0}
        assert len({note["pid"] for note in bench.notes(trial.number)}) == 2, "again, in another process"


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
def test_a_trial_that_takes_too_much_memory_ends_as_infeasible(bench: Any) -> None:
    bench.search("hungry", budget={"trials": 3}, execution={"workers": 1, "max_memory": "400MiB"})
    assert bench.states() == ["COMPLETE", "PRUNED", "COMPLETE"]
    trial = bench.trials()[1]
    assert re.fullmatch(
        r"out of memory: the trial took \d+ MiB, max_memory is 400 MiB", trial.user_attrs["reason"]
    )
    assert trial.constraints["out_of_memory"] == 1.0


@pytest.mark.any_backend  # what a trial takes is measured at its worker, wherever that is
@pytest.mark.slow
@pytest.mark.any_storage
def test_what_earlier_trials_left_in_a_worker_is_no_fault_of_the_next(bench: Any) -> None:
    bench.search("hoards", budget={"trials": 3}, execution={"workers": 1, "max_memory": "300MiB"})
    assert bench.states() == ["COMPLETE"] * 3
    assert [trial.value for trial in bench.trials()] == [1.0] * 3, "each alone in the end"
    assert not any("retries" in trial.user_attrs for trial in bench.trials())


@pytest.mark.slow
@pytest.mark.any_storage
def test_a_trial_that_runs_too_long_fails(bench: Any) -> None:
    execution = {"workers": 1, "retries": 0, "trial_timeout": 10}  # the start of its worker is part of it
    bench.search("hangs", budget={"trials": 3}, execution=execution)
    assert bench.states() == ["COMPLETE", "FAIL", "COMPLETE"]
    assert bench.trials()[1].user_attrs["error"] == "the trial ran longer than 10 s"


@pytest.mark.in_process
@pytest.mark.slow
@pytest.mark.any_storage
def test_every_kind_of_number_is_a_value(bench: Any) -> None:
    each_of(bench, "returns", "what", ["int", "numpy", "tensor"])
    assert bench.states() == ["COMPLETE"] * 3
    assert [trial.value for trial in bench.trials()] == [1.0, 0.5, 0.5]


@pytest.mark.any_storage
@pytest.mark.in_process
def test_anything_else_that_is_returned_is_an_error(bench: Any) -> None:
    said = {"None": "returned None", "text": "returned '0.5'", "pair": "must be a number"}
    each_of(bench, "returns", "what", list(said))
    assert bench.states() == ["FAIL"] * 3
    for trial in bench.trials():
        assert said[trial.params["what"]] in trial.user_attrs["error"]


@pytest.mark.any_storage
@pytest.mark.in_process
def test_a_wrong_report_fails_its_trial_and_says_what_was_wrong(bench: Any) -> None:
    said = {
        "text": "report() was given '0.5'",
        "float step": "the step is 4.5; it must be a whole number",
        "metric": "accuracy= 'high'",
    }
    each_of(bench, "reports", "what", list(said))
    assert bench.states() == ["FAIL"] * 3
    for trial in bench.trials():
        assert said[trial.params["what"]] in trial.user_attrs["error"]
        assert trial.intermediate_values == {3: 1.0}


@pytest.mark.any_storage
def test_a_step_that_does_not_rise_is_left_out(bench: Any) -> None:
    steps = {"same step": 3, "falling step": 2}
    each_of(bench, "reports", "what", list(steps))
    assert len(bench.trials()) == 2
    for trial in bench.trials():
        assert (trial.state.name, trial.value, trial.intermediate_values) == ("COMPLETE", 1.0, {3: 1.0})
        reported = steps[trial.params["what"]]
        assert events_of(trial, "steps") == [f"it reported step {reported} after step 3, which is left out"]


@pytest.mark.any_storage
def test_three_failures_alike_from_the_start_end_the_search(bench: Any) -> None:
    with pytest.raises(SearchError, match="first 3 trials all failed the same way: ValueError: no such file"):
        bench.search("all_fail", budget={"trials": 50}, execution={"workers": 1, "retries": 1})
    assert bench.states() == ["FAIL"] * 3
    assert [len(bench.notes(n)) for n in range(3)] == [2, 2, 2]


@pytest.mark.any_storage
@pytest.mark.in_process
def test_failures_that_differ_do_not_end_the_search(bench: Any) -> None:
    bench.search("fail_differently", budget={"trials": 5})
    assert bench.states() == ["FAIL"] * 5


@pytest.mark.any_storage
def test_an_objective_that_cannot_be_loaded_ends_the_search_with_the_reason(bench: Any) -> None:
    bench.folder.joinpath("broken.py").write_text("import nowhere_to_be_found\ndef train(trial): ...\n")
    spec = bench.spec().override(objective=f"{bench.folder / 'broken.py'}:train")
    with pytest.raises(SearchError, match="ModuleNotFoundError: No module named 'nowhere_to_be_found'"):
        bench.search(spec)


@pytest.mark.in_process
def test_a_finished_study_returns_at_once_with_its_winner(bench: Any, recorder: Any) -> None:
    first = bench.search(budget={"trials": 3})
    watcher = recorder()
    again = bench.search(budget={"trials": 3}, watcher=watcher)
    assert again.best == first.best
    assert watcher.ended == []
    assert len(bench.trials()) == 3


@pytest.mark.in_process
def test_a_search_continues_to_a_larger_budget(bench: Any) -> None:
    bench.search(budget={"trials": 2})
    bench.search(budget={"trials": 5})
    assert bench.states() == ["COMPLETE"] * 5


@pytest.mark.any_storage
@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"trials": 500, "target": 0.9}, r"trial \d+ reached the target 0.9"),
        ({"samples": 20}, r"the budget of 20 steps is spent"),
        (
            {"trials": 500, "time": 6},
            r"the time budget of 6 s is spent",
        ),  # a Ray actor takes seconds to start
    ],
)
def test_a_budget_ends_the_search_and_stays_spent(
    bench: Any, recorder: Any, budget: dict[str, Any], said: str
) -> None:
    result = bench.search("steady" if "time" in budget else "descend", budget=budget)
    assert re.fullmatch(said, result.stop_reason)
    trials = bench.trials()
    assert trials and all(t.state.is_finished() for t in trials)
    if "samples" in budget:
        assert sum(t.last_step for t in trials) == 20, "stopped at the report that spent it"
        assert trials[-1].user_attrs["reason"] == result.stop_reason
    watcher = recorder()
    again = bench.search("steady" if "time" in budget else "descend", budget=budget, watcher=watcher)
    assert again.stop_reason is not None
    assert watcher.ended == []
    assert len(bench.trials()) == len(trials)


@pytest.mark.any_storage
def test_every_trial_ends_when_a_target_is_reached_while_another_fails(bench: Any) -> None:
    """A trial that could be tried again is not left waiting in a search that asks no more."""
    spec = bench.spec("trial_one_fails", budget={"trials": 50, "target": 1.0}, execution={"workers": 2})
    bench.search(spec)
    assert all(t.state.is_finished() for t in bench.trials())


def ask_from_outside(url: str, command: dict[str, Any]) -> None:
    """What `hpsearch stop` and the like do, in a process of its own and without any of our code."""
    script = (
        "import sqlalchemy, sys\n"
        "with sqlalchemy.create_engine(sys.argv[1]).begin() as connection:\n"
        "    names = ('study_id', 'key', 'value_json')\n"
        "    table = sqlalchemy.table('study_user_attributes', *map(sqlalchemy.column, names))\n"
        "    row = dict(study_id=1, key='hpsearch:command:1', value_json=sys.argv[2])\n"
        "    connection.execute(table.insert().values(row))\n"
    )
    subprocess.run([sys.executable, "-c", script, url, json.dumps(command)], check=True, timeout=60)


def test_the_word_of_another_process_puts_running_trials_back(bench: Any, recorder: Any) -> None:
    stopped: list[bool] = []

    def stop(driver: Driver) -> None:
        if driver.running and not stopped:
            stopped.append(True)
            ask_from_outside(bench.url, {"do": "stop"})

    fields = {"budget": {"trials": 3}, "execution": {"workers": 1}}
    result = bench.search("steady", watcher=recorder(at_tick=stop), **fields)
    assert result.stop_reason == "asked by hpsearch stop"
    assert bench.states() == ["WAITING"]
    bench.search("steady", **fields)
    assert bench.states() == ["COMPLETE"] * 3
    begins = [n["begins"] for n in bench.notes(0) if "begins" in n]
    assert begins[0] == 0 and begins[1] >= 1, "from its checkpoint"


@pytest.mark.any_storage
def test_a_report_that_a_kill_kept_from_the_study_arrives_with_the_next_attempt(
    bench: Any, recorder: Any
) -> None:
    """Recorded in the trial's folder, and with it a checkpoint beyond it; but its driver was gone."""

    def stop(driver: Driver) -> None:
        if any(running.reported >= 3 for running in driver.running.values()):
            driver.request_stop("enough")

    fields = {"budget": {"trials": 1}, "execution": {"workers": 1}}
    bench.search("steady", watcher=recorder(at_tick=stop), **fields)
    with bench.engine().begin() as connection:
        connection.execute(sqlalchemy.text("DELETE FROM trial_intermediate_values WHERE step >= 3"))
    assert list(bench.trials()[0].intermediate_values) == [1, 2]
    bench.search("steady", **fields)
    assert list(bench.trials()[0].intermediate_values) == list(range(1, 10))
    assert bench.states() == ["COMPLETE"]


@pytest.mark.own_workers
@pytest.mark.any_storage
@pytest.mark.parametrize(
    ("execution", "said"),
    [
        ({"cpus_per_trial": 4096}, "cpus_per_trial: a trial asks for 4096 CPUs"),
        ({"gpus_per_trial": 64}, "gpus_per_trial: a trial asks for 64 GPUs"),
        ({"max_memory": "900TiB"}, "max_memory: a trial asks for "),
        (
            {"cpus_per_trial": 1, "workers": 4096},
            "workers: 4096 trials at a time, each with 1 CPU, do not fit",
        ),
    ],
)
def test_what_the_machine_does_not_have_is_refused_at_once(
    bench: Any, execution: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=f"execution.{said}.* has "):
        bench.search(execution=execution)
    assert bench.untouched()


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
def test_a_trial_that_does_not_report_does_not_hold_up_a_stop(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "REPORT_SECONDS", 1.0)

    def stop(driver: Driver) -> None:
        if 1 in driver.running:
            driver.request_stop("enough")

    bench.search("hangs", watcher=recorder(at_tick=stop), budget={"trials": 3}, execution={"workers": 1})
    assert bench.states() == ["COMPLETE", "WAITING"]


@pytest.mark.own_workers
@pytest.mark.pair
def test_a_second_driver_on_the_study_is_refused(bench: Any, recorder: Any) -> None:
    refused: list[str] = []

    def another(driver: Driver) -> None:
        with pytest.raises(StorageError) as caught:
            bench.search()
        refused.append(str(caught.value))

    bench.search(budget={"trials": 1}, watcher=recorder(at_end=another))
    assert f"process {os.getpid()}" in refused[0]
    assert "end it (hpsearch stop)" in refused[0]
    assert bench.states() == ["COMPLETE"]


@pytest.mark.any_storage
@pytest.mark.in_process
def test_a_changed_space_is_refused_with_the_difference(bench: Any) -> None:
    bench.search(budget={"trials": 1})
    changed = {"x": {"min": 0.0, "max": 2.0}}
    with pytest.raises(SearchError, match=r"parameters\.x\.max: 1\.0 -> 2\.0"):
        bench.search(budget={"trials": 2}, parameters=changed)
    assert len(bench.trials()) == 1


@pytest.mark.in_process
@pytest.mark.any_storage
def test_a_resume_with_other_threads_is_reported_and_each_trial_keeps_its_own(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.search(budget={"trials": 1})
    monkeypatch.setattr(InProcessBackend, "threads", 3)
    monkeypatch.setattr(InProcessBackend, "gpus", 0.5)
    watcher = recorder()
    result = bench.search(budget={"trials": 2}, watcher=watcher)
    assert watcher.said == [
        "when the study began, each worker computed with 1 thread, not 3 (--cpus-per-trial 1) and "
        "trials trained on the CPU, not on a GPU: values may differ in their last digits"
    ]
    threads = [
        document(result.spec, trial, result.provenance)["provenance"]["threads"] for trial in bench.trials()
    ]
    assert threads == [1, 3]


@pytest.mark.in_process
@pytest.mark.parametrize("trials", [0, 1])
def test_a_study_of_another_program_is_refused(bench: Any, trials: int) -> None:
    storage = optuna.storages.RDBStorage(bench.url)
    study = optuna.create_study(storage=storage, study_name="study", direction="maximize")
    for _ in range(trials):
        study.tell(study.ask(), 1.0)
    storage.engine.dispose()
    with pytest.raises(StorageError, match="another program"):
        bench.search()
    assert len(bench.trials()) == trials


@pytest.mark.any_storage
def test_an_interrupted_search_continues_with_the_same_configurations(bench: Any, recorder: Any) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 6}, "early_stopping": HYPERBAND}
    fields["search"] = {"sampler": "tpe", "seed": 3, "n_startup_trials": 2}

    def interrupt(driver: Driver) -> None:
        if len(driver.trials) == 3:
            driver.request_stop("the test wants it")

    first = bench.search(watcher=recorder(at_end=interrupt), **fields)
    assert first.stop_reason == "the test wants it" and len(bench.trials()) == 3
    bench.search(**fields)
    resumed = [(t.params, t.state, t.value) for t in bench.trials()]
    bench.forget()
    bench.search(**fields)
    assert [(t.params, t.state, t.value) for t in bench.trials()] == resumed


def test_a_space_of_every_kind_reaches_the_objective_and_plain_optuna(bench: Any) -> None:
    parameters: dict[str, Any] = {
        "lora_r": {"min": 2, "max": 32, "factor": 2},
        "modules": [["q"], ["q", "v"]],
        "optimizer.name": ["adamw", "sgd"],
        "optimizer.momentum": {"min": 0.0, "max": 0.9, "when": {"optimizer.name": "sgd"}},
        "alpha": {"expr": "2 * lora_r"},
        "max_steps": 400,
    }
    bench.search("params", parameters=parameters, budget={"trials": 12})
    for trial in bench.trials():
        assert trial.state.name == "COMPLETE", trial.user_attrs
        (noted,) = bench.notes(trial.number)
        given = noted["params"]
        assert trial.params["lora_r"] == given["lora_r"] in (2, 4, 8, 16, 32)
        assert given["modules"] in (["q"], ["q", "v"])
        assert trial.params["modules"] == str(given["modules"]).replace("'", '"').replace(" ", "")
        assert ("momentum" in given["optimizer"]) == (given["optimizer"]["name"] == "sgd")
        assert ("optimizer.momentum" in trial.params) == ("momentum" in given["optimizer"])
        assert trial.user_attrs["alpha"] == given["alpha"] == 2 * given["lora_r"]
        assert given["max_steps"] == 400
        assert trial.user_attrs["accuracy"] == 0.25
        folder = bench.folder / "runs" / "study" / str(trial.number)
        output = folder.joinpath("output.log").read_text().splitlines()
        assert sorted(output) == ["a word from Python", "a word from below"]
        assert '"accuracy": 0.25' in folder.joinpath("metrics.jsonl").read_text()


@pytest.mark.own_workers
@pytest.mark.any_storage
def test_a_function_of_this_process_runs_in_the_workers(bench: Any, recorder: Any) -> None:
    factor = 3.0

    def triple(trial: Any) -> float:
        return factor * float(trial.params["x"])

    spec = bench.spec(budget={"trials": 2})
    bench.run(spec, objective=triple)
    assert [t.value for t in bench.trials()] == [3 * t.params["x"] for t in bench.trials()]


@pytest.mark.any_backend
@pytest.mark.any_storage
def test_a_function_of_a_module_that_only_this_process_finds_runs_in_the_workers(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a script imports its objective from a file beside it."""
    folder = bench.folder / "beside"
    folder.mkdir()
    folder.joinpath("my_losses_9.py").write_text("def square(x):\n    return x * x\n")
    folder.joinpath("my_objective_9.py").write_text(
        "from my_losses_9 import square\ndef train(trial):\n    return square(trial.params['x'])\n"
    )
    monkeypatch.syspath_prepend(folder)
    from my_objective_9 import train  # type: ignore[import-not-found]

    spec = bench.spec(budget={"trials": 2})
    bench.run(spec, objective=train)
    assert [t.value for t in bench.trials()] == [t.params["x"] ** 2 for t in bench.trials()]


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
def test_a_new_worker_takes_the_device_of_the_lost_one(bench: Any, command: Any) -> None:
    search = command("device", budget={"trials": 3}, execution=TWO_WORKERS)
    process = search.start(env={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    devices = [bench.notes(n)[0]["device"] for n in range(3)]
    assert set(devices[:2]) == {"GPU-a", "GPU-b"}
    assert devices[2] == devices[0]


@pytest.mark.own_workers
@pytest.mark.slow
@pytest.mark.any_storage
def test_trials_share_a_device_where_each_asks_for_a_part(bench: Any, command: Any) -> None:
    search = command("one_device", budget={"trials": 4}, execution={"gpus_per_trial": 0.5, "retries": 0})
    process = search.start(env={"CUDA_VISIBLE_DEVICES": "GPU-a"})
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    begun = [bench.notes(n)[0] for n in range(4)]
    assert [note["device"] for note in begun] == ["GPU-a"] * 4
    assert len({note["pid"] for note in begun}) == 2


@pytest.mark.any_storage
def test_an_unknown_backend_is_named_with_those_there_are(bench: Any, recorder: Any) -> None:
    with pytest.raises(SearchError, match=f'no backend "{bench.backend}x", did you mean "{bench.backend}"'):
        bench.run(bench.spec(), backend=f"{bench.backend}x")
    assert bench.untouched()
