"""A folder is claimed by the study that owns it, and by one alone."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpsearch.storage import StorageError, claims, files, studies
from hpsearch.storage.claims import Claim, claim_new
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CLAIM
from hpsearch.storage.studies import FOLDER, ID, SPEC, claim_of, open_live
from hpsearch.storage.workspace import Workspace

SPEC_OF = {"name": "lora", "metric": "val_loss"}


def at(runs: Path) -> Workspace:
    """One of a server's database, whose studies keep their files there."""
    return Workspace("postgresql://h/d", runs)


@contextmanager
def opened(file: Path) -> Iterator[optuna.storages.RDBStorage]:
    storage = open_storage(f"sqlite:///{file}", create=True)
    yield storage
    storage.engine.dispose()


def search(file: Path, name: str = "lora", *, trials: int = 1) -> str:
    """What a search does with the folders of its studies: the name of its own, with files of trials."""
    with opened(file) as storage, claim_of(storage, name, Workspace.at(str(file))) as claim:
        assert claim.take()
        attrs = {FOLDER: claim.kept, ID: claim.study, SPEC: SPEC_OF | {"name": name}}
        with closing(open_live(storage, name, goal="minimize", attrs=attrs)) as live:
            assert (studies.folder_in(live.attrs, name), live.attrs[ID]) == (claim.kept, claim.study)
        for number in range(trials):
            (claim.folder / str(number)).mkdir(exist_ok=True)
            (claim.folder / str(number) / "of").write_text(file.name)
        return claim.kept


def of(runs: Path, kept: str) -> str:
    return (runs / kept / "0" / "of").read_text()


def forget(file: Path, *keys: str) -> None:
    """Leave the study as an earlier hpsearch made it."""
    with opened(file) as storage, storage.engine.begin() as connection:
        for key in keys:
            connection.exec_driver_sql(f"DELETE FROM study_user_attributes WHERE key = '{key}'")


def test_of_two_that_begin_together_each_has_a_folder(tmp_path: Path) -> None:
    with claim_new(at(tmp_path), "s") as one, claim_new(at(tmp_path), "s") as other:
        assert (one.kept, other.kept) == ("s", "s-2")
    assert list(tmp_path.iterdir()) == [], "neither has trials"


def test_a_folder_without_trials_is_free_when_its_search_was_killed(tmp_path: Path) -> None:
    with claim_new(at(tmp_path), "s") as killed:
        shutil.copytree(killed.folder, tmp_path / "left")
    assert (tmp_path / "left" / CLAIM).read_text() == f"{killed.study}\n\n"
    with claim_new(at(tmp_path), "left") as claim:
        assert claim.kept == "left"


def test_a_claim_that_is_let_go_while_another_waits_for_it_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has opened a file that has no name any more when it gets the lock."""
    first = claim_new(at(tmp_path), "s")
    flock = fcntl.flock

    def lock_late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        first.__exit__()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with claim_new(at(tmp_path), "s") as second:
        assert (second.folder / CLAIM).read_text().startswith(second.study)
        with claim_new(at(tmp_path), "s") as third:
            assert third.kept == "s-2", "the lock is one of the file that others find"


def test_a_folder_that_is_removed_while_it_is_claimed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was another's without trials, which has just let it go."""

    def open_late(path: Path, flags: int) -> int:
        monkeypatch.setattr(claims, "opened", files.opened)
        path.parent.rmdir()
        return files.opened(path, flags)

    monkeypatch.setattr(claims, "opened", open_late)
    with claim_new(at(tmp_path), "s") as claim:
        assert claim.kept == "s" and (claim.folder / CLAIM).is_file()


def test_a_study_keeps_its_folder_and_keeps_out_another_database(tmp_path: Path) -> None:
    assert search(tmp_path / "a.db") == search(tmp_path / "a.db") == "lora"
    assert search(tmp_path / "b.db") == search(tmp_path / "b.db") == "lora-2"
    assert of(tmp_path / "runs", "lora") == "a.db"


def test_a_moved_database_keeps_its_folder_with_or_without_its_files(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    search(here / "a.db")
    shutil.copytree(here, there)
    assert search(there / "a.db") == search(here / "a.db") == "lora", "copied together"
    (here / "a.db").rename(here / "c.db")
    assert search(here / "c.db") == "lora", "renamed"
    assert of(here / "runs", "lora") == "c.db"


def test_a_copy_of_a_database_beside_it_has_its_files_in_another_folder(tmp_path: Path) -> None:
    search(tmp_path / "a.db", trials=2)
    shutil.copy(tmp_path / "a.db", tmp_path / "copy.db")
    assert search(tmp_path / "copy.db") == "lora-2"
    assert [of(tmp_path / "runs", kept) for kept in ("lora", "lora-2")] == ["a.db", "copy.db"]
    assert (tmp_path / "runs" / "lora-2" / "1" / "of").read_text() == "a.db", "copied before"
    assert search(tmp_path / "a.db") == "lora" and search(tmp_path / "copy.db") == "lora-2"


@pytest.mark.parametrize("keys", [(ID,), (ID, FOLDER)])
def test_a_study_of_an_earlier_hpsearch_claims_the_folder_it_has(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    search(tmp_path / "a.db")
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    for file in (tmp_path / "a.db", tmp_path / "b.db"):
        forget(file, *keys)
    (tmp_path / "runs" / "lora" / CLAIM).unlink()
    assert search(tmp_path / "a.db") == search(tmp_path / "a.db") == "lora"
    assert search(tmp_path / "b.db") == "lora-2", "which has come to the same by a race"
    assert of(tmp_path / "runs", "lora") == "a.db"


@pytest.mark.parametrize("kept", [(ID,), (ID, FOLDER)])
def test_a_study_whose_id_was_not_written_keeps_the_folder_that_it_claimed(
    tmp_path: Path, kept: tuple[str, ...]
) -> None:
    """As where the first search by this hpsearch was ended early, or an older database was put back."""
    file = tmp_path / "a.db"
    search(file)
    forget(file, *kept)
    assert search(file) == "lora"
    forget(file, *kept)
    search(tmp_path / "b.db", "other")
    assert of(tmp_path / "runs", search(file)) == "a.db"


def test_optunas_copy_has_its_files_in_another_folder(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    search(file, trials=2)
    with opened(file) as storage:
        optuna.copy_study(
            from_study_name="lora", from_storage=storage, to_storage=storage, to_study_name="copy"
        )
    assert search(file) == "lora", "the older one keeps it"
    assert search(file, "copy") == search(file, "copy") == "copy"
    assert (tmp_path / "runs" / "copy" / "1" / "of").read_text() == "a.db"


def test_two_that_begin_one_study_together_do_not_share_it(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with (
        opened(file) as storage,
        claim_of(storage, "lora", Workspace.at(str(file))) as one,
        claim_of(storage, "lora", Workspace.at(str(file))) as other,
    ):
        first, second = ({FOLDER: c.kept, ID: c.study, SPEC: SPEC_OF} for c in (one, other))
        open_live(storage, "lora", goal="minimize", attrs=first).close()
        with pytest.raises(StorageError, match='began the study "lora" at the same moment'):
            open_live(storage, "lora", goal="minimize", attrs=second)
        assert studies.attrs_of(storage, "lora") == first


def test_another_programs_empty_study_is_begun_once(tmp_path: Path) -> None:
    with opened(tmp_path / "a.db") as storage:
        optuna.create_study(study_name="lora", storage=storage)
        attrs: dict[str, Any] = {ID: "one", SPEC: SPEC_OF}
        open_live(storage, "lora", goal="minimize", attrs=attrs).close()
        with pytest.raises(StorageError, match="at the same moment"):
            open_live(storage, "lora", goal="minimize", attrs=attrs | {ID: "two"})


@pytest.mark.parametrize("owned", [True, False])
def test_deleting_a_study_deletes_no_folder_of_another(tmp_path: Path, owned: bool) -> None:
    file, runs = tmp_path / "a.db", tmp_path / "runs"
    search(file)
    if not owned:
        (runs / "lora" / CLAIM).write_text("another\n../../b.db\n")
    with opened(file) as storage:
        studies.delete_study(storage, "lora", studies.claim_on(storage, "lora", Workspace.at(str(file))))
    assert (runs / "lora").exists() != owned


def test_a_claim_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "s" / CLAIM).symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match=r"cannot write .*/s/\.study"):
        Claim(at(tmp_path), "s", "id").take()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(StorageError, match=r"cannot write .*/runs/s/\.study: Not a directory"):
        claim_new(at(tmp_path / "runs"), "s")
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)
