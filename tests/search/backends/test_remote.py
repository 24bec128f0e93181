"""The desk of the remote backend: repetition, silence, restarts, checkpoints; all by the real driver."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.backends.remote.address import connect, listen, socket_path
from hpsearch.search.backends.remote.archive import ArchiveError, TooLarge, pack, unpack
from hpsearch.search.backends.remote.backend import RemoteBackend, Window
from hpsearch.search.backends.remote.desk import Answer, Desk
from hpsearch.search.errors import UsageError
from hpsearch.search.service.worker.link import Link
from hpsearch.spaces import Spec
from hpsearch.storage.files import CHECKPOINT, SEALED, has_checkpoint
from hpsearch.storage.studies import LEASES_LOST
from hpsearch.storage.trial_attrs import USED

from ...support.driving import PROMOTION, DrivenStudy
from ...support.remote import LossyLink, workers_for

SOON = 61.0  # seconds after which a lease is over that nothing was heard of


class Counter:
    """What workers say to a desk, by a clock of the test."""

    def __init__(self, study: DrivenStudy, spec: Spec) -> None:
        self.study, self.spec = study, spec
        self.now = 1000.0
        self.open()

    def open(self) -> None:
        """Begin a search, or continue it after a kill."""
        self.driver = self.study.driver(self.spec, clock=lambda: self.now)
        self.desk = Desk(self.driver, lambda: self.now, lambda: self.now)
        self._window = Window({}, self.desk)

    def say(self, do: str, lease: str | None = None, **more: Any) -> Answer:
        """A request; the answer, or its refusal."""
        answers: list[Answer] = []
        request = {"do": do, **({} if lease is None else {"lease": lease}), **more}
        self._window.take(request, answers.append)
        assert len(answers) == 1, "it waits"
        found: Answer = answers[0].get("answer", answers[0])
        return found

    def ask(self, worker: str = "w", request: str = "1") -> Answer:
        return self.say("ask", worker=worker, request=request)

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.driver.tick()
        self.desk.tick()


@pytest.fixture
def counter(study: DrivenStudy, make_spec: Callable[..., Spec]) -> Iterator[Callable[..., Counter]]:
    def make(**fields: Any) -> Counter:
        fields = {"budget": {"trials": 3}} | fields
        return Counter(study, make_spec(objective="remote", **fields))

    yield make


def test_whatever_is_said_again_is_answered_alike_and_counts_once(counter: Callable[..., Counter]) -> None:
    at = counter()
    given = at.ask()
    assert at.ask() == given, "the same worker and request"
    assert at.ask(request="2")["lease"] != given["lease"]
    lease = given["lease"]
    for _ in range(2):
        assert at.say("report", lease, step=2, value=0.5, output="once\n")["go_on"]
    assert at.say("report", lease, step=1, value=0.7)["go_on"], "late, and left out"
    used = [2.0, 1.0, 4.0, None, 0.1]
    first = at.say("complete", lease, value=0.25, used=used)
    assert (first["state"], first["value"]) == ("complete", 0.25)
    assert at.say("complete", lease, value=0.25, used=used) == first
    assert at.say("complete", lease, value=0.5)["refused"] == "wrong-state"
    assert at.say("fail", lease, message="no")["refused"] == "wrong-state"
    assert at.say("report", lease, step=3, value=0.1)["refused"] == "lease-over"
    at.driver.close()
    trial = at.study.trials()[0]
    assert (trial.value, trial.intermediate_values) == (0.25, {2: 0.5})
    assert trial.system_attrs[USED] == used
    folder = at.study.runs / "study" / "0"
    assert folder.joinpath("output.log").read_text() == "once\n"
    assert len(folder.joinpath("metrics.jsonl").read_text().splitlines()) == 1
    at.open()
    assert at.say("complete", lease, value=0.25)["value"] == 0.25, "also to a later driver"


def test_a_worker_that_was_silent_gets_its_trial_back_where_nobody_else_has_it(
    counter: Callable[..., Counter],
) -> None:
    at = counter(execution={"workers": 1, "retries": 1})
    lease = at.ask()["lease"]
    at.say("report", lease, step=1, value=0.5)
    at.pass_seconds(SOON)
    assert at.study.states() == ["WAITING"] and not at.driver.running
    assert at.say("report", lease, step=2, value=0.4)["go_on"], "it is back"
    assert at.driver.trials[0].user_attrs["retries"] == 0, "that cost no attempt"
    at.pass_seconds(SOON)
    other = at.ask("another")
    assert (other["trial"], other["reported"]) == (0, 2)
    late = at.say("report", lease, step=3, value=0.3)
    assert (late["refused"], late["reason"]) == ("lease-over", "another worker has it")
    at.pass_seconds(SOON)
    assert at.study.states() == ["FAIL"], "its attempts are spent"
    assert at.study.trials()[0].user_attrs["error"] == 'worker "another" was not heard of for 60 s'
    assert at.driver.study.user_attrs[LEASES_LOST] == 3
    assert at.say("beat", other["lease"])["state"] == "fail"
    at.driver.close()


def test_a_beat_keeps_a_trial_and_a_release_costs_no_attempt(counter: Callable[..., Counter]) -> None:
    at = counter()
    lease = at.ask()["lease"]
    for _ in range(4):
        at.pass_seconds(50)
        assert at.say("beat", lease) == {"go_on": True, "until": 60.0}
    assert at.say("release", lease)["state"] == "waiting"
    assert at.say("release", lease)["state"] == "waiting"
    assert at.say("report", lease, step=1, value=0.5)["refused"] == "lease-over"
    assert at.ask(request="2")["trial"] == 0
    assert "retries" not in at.driver.trials[0].user_attrs
    at.driver.close()


def test_a_killed_driver_leaves_trials_to_their_workers(counter: Callable[..., Counter]) -> None:
    at = counter()
    lease = at.ask()["lease"]
    at.say("report", lease, step=1, value=0.5)
    at.driver._lifecycle.storage.flush()  # and then it is killed
    at.now += 200
    at.open()
    assert list(at.driver.running) == [0], "nobody else gets it"
    assert at.ask("another")["trial"] == 1
    assert at.say("report", lease, step=2, value=0.4)["go_on"]
    at.driver._lifecycle.storage.flush()
    at.now += 400
    at.open()
    assert 0 not in at.driver.running, "its worker has given up by now"
    at.driver.close()


def test_a_killed_trial_is_told_so_once(counter: Callable[..., Counter]) -> None:
    at = counter()
    lease = at.ask()["lease"]
    at.say("report", lease, step=1, value=0.5)
    at.driver._lifecycle.flush()
    at.study.command(do="kill", trial=0)
    at.pass_seconds(1)
    told = at.say("report", lease, step=2, value=0.4)
    assert (told["go_on"], told["because"]) == (False, "killed")
    assert at.say("report", lease, step=2, value=0.4) == told
    assert at.say("complete", lease, value=0.4)["refused"] == "lease-over"
    at.driver.close()


def test_a_promoted_trial_goes_on_from_a_checkpoint_of_another_machine(
    counter: Callable[..., Counter],
) -> None:
    at = counter(early_stopping=PROMOTION, budget={"trials": 3})
    leases = []
    for number in range(3):
        given = at.ask("a", str(number))
        place = Path(at.say("place", given["lease"])["folder"])
        place.mkdir()
        place.joinpath("weights").write_text(str(number))
        assert not has_checkpoint(place.parent)
        at.say("uploaded", given["lease"], folder=str(place))
        assert not has_checkpoint(place.parent), "with the next report"
        told = at.say("report", given["lease"], step=1, value=float(number))
        assert not told["go_on"] and told["because"] == ("pruned" if number == 2 else "paused")
        leases.append(given["lease"])
    given = at.ask("b")
    assert (given["trial"], given["reported"], given["checkpoint"]) == (0, 1, True)
    folder = Path(at.say("checkpoint", given["lease"])["folder"])
    assert folder.name == CHECKPOINT and folder.joinpath("weights").read_text() == "0"
    assert folder.with_name(SEALED).joinpath("weights").read_text() == "0"
    assert at.say("place", leases[0])["refused"] == "lease-over"
    wrong = at.say("uploaded", given["lease"], folder=str(folder.parents[2]))
    assert wrong["refused"] == "malformed"
    at.driver.close()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"do": "ask", "worker": "w"}, "request: Field required"),
        ({"do": "ask", "worker": "w", "request": "1", "lease": 5}, "lease: "),
        ({"do": "ask", "worker": "a\nb", "request": "1"}, "worker: "),
        ({"do": "ask", "worker": "w", "request": "1", "weight": 5}, "weight: is no field of this request"),
        ({"do": "raport", "lease": "x"}, 'there is no request "raport", did you mean "report"?'),
        ({"do": "report", "lease": "x", "step": 1, "value": 0.5}, "there is no such lease"),
        ({"do": "report", "lease": "x", "step": 1.5, "value": 0.5}, "step: "),
        ({"do": "report", "lease": "x", "step": 1, "value": "much"}, "value: must be a number"),
        ({"do": "report", "lease": 5}, "report needs the text of a lease"),
        (["ask"], "a request is an object"),
        (None, "a request is an object"),
    ],
)
def test_what_cannot_be_meant_is_refused(counter: Callable[..., Counter], request_: Any, said: str) -> None:
    at = counter()
    answers: list[Answer] = []
    at._window.take(request_, answers.append)
    assert said in answers[0]["message"]
    assert at.driver.trials == []
    at.driver.close()


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> io.BytesIO:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
    packed.seek(0)
    return packed


def link_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def test_a_zip_leads_nowhere_else(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name in ("../out", "/etc/out", "a/../../out", "a\\..\\out", "./a", "a//b", "x" * 2000):
        with subtests.test(name[:20]), pytest.raises(ArchiveError):
            unpack(zipped((name, b"x")), tmp_path / "to")
        assert not (tmp_path / "to").exists()
    with pytest.raises(ArchiveError, match="is a link"):
        unpack(zipped((link_entry("weights"), b"/etc/passwd")), tmp_path / "to")
    with pytest.raises(TooLarge):
        unpack(zipped(("zeros", bytes(1 << 22))), tmp_path / "to", largest=1 << 20)
    with pytest.raises(ArchiveError, match="two files"):
        unpack(zipped(("a", b"x"), ("a/b", b"x")), tmp_path / "to")
    for content in (b"", b"PK\3\4 but no more", b"text"):
        with pytest.raises(ArchiveError, match="cannot be read as a zip"):
            unpack(io.BytesIO(content), tmp_path / "to")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_arrives_as_it_left_without_what_is_unfinished(tmp_path: Path) -> None:
    source = tmp_path / "from"
    (source / "deep").mkdir(parents=True)
    source.joinpath("deep", "weights").write_bytes(os.urandom(1 << 16))
    source.joinpath("state.pt.tmp").write_text("half")
    source.joinpath("link").symlink_to("/etc/passwd")
    with (tmp_path / "packed.zip").open("w+b") as packed:
        pack(source, packed)
        unpack(packed, tmp_path / "to")
    assert [path.name for path in sorted((tmp_path / "to").rglob("*"))] == ["deep", "weights"]
    assert (tmp_path / "to/deep/weights").read_bytes() == (source / "deep/weights").read_bytes()


def test_a_socket_is_private_and_its_folder_may_have_any_path(tmp_path: Path) -> None:
    path = socket_path("f" * 32, tmp_path / ("long" * 30))
    with listen(path) as listening:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with connect(path, 1.0):
            listening.accept()[0].close()
    with listen(path):
        pass  # what a killed search has left is replaced


def test_a_function_of_this_process_cannot_go_elsewhere(make_spec: Callable[..., Spec]) -> None:
    with pytest.raises(UsageError, match="cannot run on workers elsewhere"):
        RemoteBackend(make_spec(), {"function": "abc", "path": []})


@pytest.mark.slow
@pytest.mark.parametrize(("backend_name", "storage_name"), [("remote", "sqlite")])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_lossy_link_loses_no_report_and_doubles_no_trial(
    bench: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    from hpsearch.search import run

    monkeypatch.setattr("hpsearch.search.service.worker.courier.SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr("hpsearch.search.service.hpsearch_client.SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr("hpsearch.search.service.worker.courier.LONGEST_PAUSE", 0.02)
    links: list[LossyLink] = []

    def wrap(link: Link) -> LossyLink:
        links.append(LossyLink(link, seed))
        return links[-1]

    fields: dict[str, Any] = {"budget": {"trials": 8}, "search": {"sampler": "tpe", "seed": 3}}
    spec = bench.spec("swift", early_stopping=PROMOTION, execution={"workers": 1}, **fields)
    with workers_for(spec, wrap=wrap):
        run(spec, backend="remote", storage=bench.url, runs=bench.folder / "runs")
    assert links[0].lost > 5
    trials = bench.trials()
    assert [trial.number for trial in trials] == list(range(8))
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "PRUNED"}
    for trial in trials:
        steps = [note["step"] for note in bench.notes(trial.number) if "step" in note]
        assert sorted(trial.intermediate_values) == list(range(1, trial.last_step + 1))
        assert set(trial.intermediate_values) <= set(steps), "it trains on while the search is away"
