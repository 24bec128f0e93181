"""Real files, real URLs, and what is said where one cannot be used."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy

from hpsearch.storage import DatabaseUnavailable, StorageError, database
from hpsearch.storage.damage import readable
from hpsearch.storage.database import open_storage, resolve_url, sqlite_file

from ..support.once import make_tables

NAMES = [
    "plain.db",
    "with space.db",
    "br{ace}s.db",
    "what?.db",
    "a?b=c.db",
    "{SCHEMA_VERSION}.db",
    "per%20cent%.db",
    "ünïcødé 数.db",
    "quote's\".db",
    "at@colon:slash#hash&and=.db",
    "-dash",
    "caf\udce9.db",
]


@pytest.fixture(autouse=True)
def new_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases are made here as they are for users."""
    monkeypatch.setattr(database, "_fill", make_tables)


@pytest.fixture
def opened() -> Iterator[Callable[..., optuna.storages.RDBStorage]]:
    """Open storages; closed again after the test."""
    found: list[optuna.storages.RDBStorage] = []

    def make(url: str, **options: Any) -> optuna.storages.RDBStorage:
        found.append(open_storage(url, **options))
        return found[-1]

    yield make
    for storage in found:
        storage.engine.dispose()


@pytest.mark.parametrize("name", NAMES)
def test_any_file_name_names_exactly_that_file(tmp_path: Path, opened: Any, name: str) -> None:
    url = resolve_url(str(tmp_path / name))
    storage = opened(url, create=True)
    storage.create_new_study([optuna.study.StudyDirection.MINIMIZE], "s")
    left = {p.name.removesuffix("-wal").removesuffix("-shm") for p in tmp_path.iterdir()}
    assert left == {name}
    assert sqlite_file(url) == tmp_path / name
    assert optuna.get_all_study_names(opened(url)) == ["s"]
    with closing(sqlite3.connect(tmp_path / name)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("name", ["what?.db", "what?", "what.db?mode=ro", "a?b=c.db"])
def test_a_question_mark_of_a_url_is_refused_and_nothing_is_made_under_half_the_name(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(StorageError, match=r'"\?" in a SQLite URL'):
        open_storage(f"sqlite:///{tmp_path / name}", create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(StorageError, match="in memory and gone"):
        open_storage(url, create=True)


@pytest.mark.parametrize(
    "url", ["://", "nothing at all://x y", "postgresql://u:p@h:port/d", "postgresql://u:p"]
)
def test_an_invalid_url_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(
        StorageError, match=r'://\.\.\." is not a database URL; write sqlite:///FILE'
    ) as caught:
        open_storage(url)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize("password", ["se@cret", "@secret", "se/c@ret", "se?cr@et@"])
def test_an_at_sign_in_a_password_must_be_escaped(password: str) -> None:
    with pytest.raises(StorageError, match=r"^postgresql://u:\*\*\*@h/d: an \"@\" .* written %40$"):
        open_storage(f"postgresql://u:{password}@h/d")


def test_the_url_is_the_given_one_then_the_environments_then_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HPSEARCH_STORAGE", raising=False)
    assert resolve_url(None) == "sqlite:///hpsearch.db"
    monkeypatch.setenv("HPSEARCH_STORAGE", "other.db")
    assert resolve_url(None) == "sqlite:///other.db"
    assert resolve_url("/a/b.db") == "sqlite:////a/b.db"
    assert resolve_url("100%?.db") == "sqlite:///100%25%3F.db"


def test_a_missing_database_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no database .*; a search creates it"):
        open_storage(f"sqlite:///{tmp_path / 'none.db'}")
    assert list(tmp_path.iterdir()) == [], "asking made nothing"


def test_an_empty_file_is_filled_by_a_search_alone(tmp_path: Path, opened: Any) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageError, match="is empty; a search fills it"):
        open_storage(url)
    assert optuna.get_all_study_names(opened(url, create=True)) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: p.mkdir(), "is a folder, not a database file"),
        (lambda p: p.write_text("version: 1\nname: lora\n"), "is not a SQLite database"),
        (lambda p: p.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096), "is damaged: file is not a"),
        (lambda p: p.symlink_to("nowhere/at/all.db"), "no folder|cannot open"),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_what_is_no_database_is_refused(
    tmp_path: Path, make: Callable[[Path], Any], said: str, create: bool
) -> None:
    path = tmp_path / "studies.db"
    make(path)
    with pytest.raises(StorageError, match=said if create else f"{said}|there is no database"):
        open_storage(f"sqlite:///{path}", create=create)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no folder .*/no/where for the database s.db"):
        open_storage(f"sqlite:///{tmp_path / 'no' / 'where' / 's.db'}", create=True)


def test_another_applications_database_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
        database.commit()
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(StorageError, match="is another application's; choose another file"):
            open_storage(f"sqlite:///{path}", create=create)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("version", "what"), [("v2.6.0.a", "optuna storage upgrade"), ("v99.a", "updating")])
@pytest.mark.parametrize("create", [True, False])
def test_another_schema_of_optuna_is_refused(
    tmp_path: Path, opened: Any, version: str, what: str, create: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    opened(url, create=True).engine.dispose()
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = ?", (version,))
        database.commit()
    with pytest.raises(StorageError, match=f"was made by an.* Optuna than .*{what}"):
        open_storage(url, create=create)


@pytest.mark.parametrize(
    ("url", "driven"),
    [
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+psycopg2://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("mysql://u@h/d", "mysql+pymysql://u@h/d"),
        ("mariadb+mariadbconnector://u@h/d", "mysql+mariadbconnector://u@h/d"),
    ],
)
def test_a_servers_url_gets_the_driver_that_we_install(url: str, driven: str) -> None:
    assert resolve_url(url) == driven


@pytest.mark.parametrize(
    ("url", "module", "advice"),
    [
        ("postgres://user:secret@host/d", "psycopg", r"pip install 'hpsearch\[postgres\]'$"),
        ("mysql://user:secret@host/d", "pymysql", r"pip install 'hpsearch\[mysql\]'$"),
        (
            "postgresql+psycopg2://user:secret@host/d",
            "psycopg2",
            r"or write postgresql\+psycopg://\.\.\. and ",
        ),
        ("postgresql+nothing://user:secret@host/d", "nothing", r"or write postgresql\+psycopg://\.\.\. and "),
    ],
)
def test_a_server_without_its_driver_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as where it is not installed
    with pytest.raises(StorageError, match=r"user:\*\*\*@host/d needs a driver .* not installed") as caught:
        open_storage(resolve_url(url))
    assert re.search(advice, str(caught.value))


def test_other_databases_are_refused() -> None:
    with pytest.raises(
        StorageError, match='u:\\*\\*\\*@h/d: studies cannot be stored in "oracle"; write sqlite'
    ):
        open_storage("oracle+oracledb://u:secret@h/d")


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=pytest.mark.postgres), "mariadb"])
def test_a_server_that_cannot_be_used_is_reported_without_the_password(
    kind: str, request: pytest.FixtureRequest, opened: Any
) -> None:
    server = request.getfixturevalue(kind)
    wrong = {
        "there are no studies in": server.database(),
        "\"none_such\" does not exist|database 'none_such'": server.url("none_such"),
        "(?i)password authentication failed|access denied": server.url(server.first, password="s3cr3t&word"),
        "refused": server.url(server.first, port=1),
    }
    for said, url in wrong.items():
        with pytest.raises(StorageError, match=said) as caught:
            open_storage(url)
        message = str(caught.value)
        assert "searcher:***@127.0.0.1" in message and "\n" not in message
        chain: BaseException | None = caught.value
        while chain is not None:
            assert not re.search("s3cr3t|p@ss|p%40ss|50%", str(chain))
            chain = chain.__cause__ or chain.__context__
    assert "creates the tables in it, but not the database" in _refusal(server.url("none_such"))


def _refusal(url: str) -> str:
    with pytest.raises(StorageError) as caught:
        open_storage(url, create=True)
    return str(caught.value)


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=pytest.mark.postgres), "mariadb"])
def test_a_password_may_have_letters_of_any_language(
    kind: str, request: pytest.FixtureRequest, opened: Any
) -> None:
    server = request.getfixturevalue(kind)
    name = server.database().rpartition("/")[2]
    if kind == "postgres":
        server.execute("CREATE USER other SUPERUSER PASSWORD 'дом'")
    else:
        server.execute("CREATE USER other@'127.0.0.1' IDENTIFIED BY 'дом'")
        server.execute("GRANT ALL ON *.* TO other@'127.0.0.1'")
    assert (
        optuna.get_all_study_names(opened(server.url(name, user="other", password="дом"), create=True)) == []
    )


@pytest.mark.postgres
def test_neither_the_engine_nor_optunas_storage_knows_the_password(postgres: Any, opened: Any) -> None:
    url = postgres.database()
    for given in (url, f"{url}?password={url.split(':')[2].split('@')[0]}"):
        storage = opened(given, create=True)
        for shown in (storage.url, repr(storage.engine), str(storage.engine.url)):
            assert "p%40ss" not in shown and "p@ss" not in shown
        assert optuna.get_all_study_names(storage) == []


@pytest.mark.postgres
def test_another_applications_table_in_a_servers_database_is_refused(postgres: Any, opened: Any) -> None:
    url = postgres.database()
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE bookmarks (url TEXT)"))
    opened(url, create=True)  # neighbours are no trouble
    other = postgres.database()
    engine = sqlalchemy.create_engine(other, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE trials (patient TEXT)"))
    with pytest.raises(
        StorageError, match='is another application\'s: it has a table of its own named "trials"'
    ):
        open_storage(other, create=True)


def test_a_host_that_never_answers_is_given_up_on() -> None:
    """The kernel takes the connection, and nobody ever speaks."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://u:secret@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2"
        with pytest.raises(StorageError, match="timeout expired"):
            open_storage(url)


AS_NOBODY = """\
import os, sys
from hpsearch.storage import DatabaseUnavailable, StorageError, database
from hpsearch.storage.damage import readable
from hpsearch.storage.database import open_storage
import optuna
optuna.storages.RDBStorage("sqlite://")  # loads all while the interpreter's files can be read
os.setgid(65534); os.setuid(65534)
for create in (True, False):
    try:
        open_storage(sys.argv[1], create=create)
    except StorageError as error:
        print(error)
"""


def _as_nobody(url: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_what_may_not_be_written_is_refused_before_anything_happens(opened: Any) -> None:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp())  # pytest's own are closed to other users
    try:
        folder.chmod(0o755)
        said = _as_nobody(f"sqlite:///{folder / 'new.db'}")
        assert said[0] == f"the folder {folder} cannot be written, but the database new.db belongs there"
        assert said[1].startswith("there is no database")
        opened(f"sqlite:///{folder / 'old.db'}", create=True).engine.dispose()
        said = _as_nobody(f"sqlite:///{folder / 'old.db'}")
        assert said == [f"the database {folder / 'old.db'} or its folder cannot be written"], "it can be read"
    finally:
        shutil.rmtree(folder)


def test_a_database_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Who looked while its tables were made took it for another application's."""
    file = tmp_path / "a.db"
    with ThreadPoolExecutor(1) as maker:
        made = maker.submit(open_storage, f"sqlite:///{file}", create=True)
        while not (file.exists() or made.done()):
            pass
        storage = open_storage(f"sqlite:///{file}")
        assert made.result().get_all_studies() == storage.get_all_studies() == []
        assert not list(tmp_path.glob(".hpsearch-*"))


def test_several_may_make_a_database_at_once(tmp_path: Path) -> None:
    makers = """
import os, sys
from hpsearch.storage.database import open_storage
for _ in range(6):
    if os.fork() == 0:
        open_storage(sys.argv[1], create=True)
        sys.exit()
sys.exit(any([os.wait()[1] for _ in range(6)]))
"""
    command = [sys.executable, "-c", makers, f"sqlite:///{tmp_path / 'a.db'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_opening_a_file_again_keeps_the_locks_of_this_process(
    tmp_path: Path, opened: Callable[..., optuna.storages.RDBStorage]
) -> None:
    """Where a process closes a descriptor of its own, all its locks on the file go, and others drop its log."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with opened(url, create=True).engine.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM studies").all()
        opened(url)
        other = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version = 1'); c.close()"
        subprocess.run([sys.executable, "-c", other, tmp_path / "a.db"], check=True)
        assert (tmp_path / "a.db-wal").exists()


def test_a_full_disk_is_told_from_other_errors_that_pass(tmp_path: Path) -> None:
    tables = open_storage(resolve_url(str(tmp_path / "studies.db")), create=True)
    with tables.engine.connect() as connection, pytest.raises(DatabaseUnavailable) as refused, readable():
        connection.execute(sqlalchemy.text("PRAGMA max_page_count = 1"))  # no more than there are
        connection.execute(sqlalchemy.text("CREATE TABLE more AS SELECT zeroblob(1000000)"))
    assert (refused.value.code, str(refused.value)) == ("disk-full", "database or disk is full")
