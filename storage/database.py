"""Opens the database that holds the studies, in Optuna's own schema: a SQLite file, PostgreSQL or MySQL.

SQLite is opened in WAL mode with a long busy timeout, so that a reader (a dashboard, another command) never
makes the search say "database is locked", and never waits for it either. A server's password is passed only
to its driver: neither the engine nor Optuna's storage has it in its URL.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Container, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import sqlalchemy
from optuna.storages._rdb import models
from optuna.storages._rdb.storage import _create_scoped_session
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import exc, orm

from . import DatabaseUnavailable, StorageError, UrlError
from .damage import cause, damaged, give_up, readable, refuse_damage
from .passwords import hidden
from .rows import STUDIES, TRIALS, delete_study, drop_leftovers, read_trials
from .schema import is_newest, make_tables

DEFAULT_URL = "sqlite:///hpsearch.db"
BUSY_SECONDS = 60
CONNECT_SECONDS = 10  # for a server to answer; a URL's own options take precedence
SILENT_SECONDS = 60  # for a server to answer during a conversation, before it counts as gone
FORMS = "sqlite:///FILE, postgresql+psycopg://USER@HOST/DATABASE or mysql+pymysql://USER@HOST/DATABASE"

_NAMES = {"postgres": "postgresql", "mariadb": "mysql"}  # names that other tools use
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}  # where a URL names none
_EXTRAS = {"postgresql": "postgres", "mysql": "mysql"}  # the extras that install them
_TIMEOUTS = {
    "psycopg": {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": SILENT_SECONDS // 2,
        "keepalives_interval": SILENT_SECONDS // 6,
        "keepalives_count": 3,
        "tcp_user_timeout": SILENT_SECONDS * 1000,
    },
    "pymysql": {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": SILENT_SECONDS,
        "write_timeout": SILENT_SECONDS,
    },
}


class WalConnection(sqlite3.Connection):
    """A SQLite connection in WAL mode, which rejects rows of a study or trial that is gone.

    The pragmas are set in the connection class because `RDBStorage` connects in its constructor, before a
    listener could be attached to its engine.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")
        self.execute("PRAGMA foreign_keys=ON")


def is_writable(file: Path) -> bool:
    """Whether a SQLite file, and its log beside it, can be written."""
    return os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK)


def uri_of(file: Path) -> str:
    """The URI with which SQLite opens a file, read-only where it cannot be written.

    Even then SQLite would create a log for a database in WAL mode. Where there is no log, nobody writes.
    """
    if is_writable(file):
        mode = "rw"
    else:
        in_use = any(file.with_name(f"{file.name}-{log}").exists() for log in ("wal", "shm", "journal"))
        mode = "ro" if in_use else "ro&immutable=1"
    return f"file://{quote(os.fsencode(file.absolute()))}?mode={mode}"


class _Storage(optuna.storages.RDBStorage):
    """Optuna's storage, in which no row outlives its study, or exists before its study or trial.

    Optuna first lists rows and then deletes those, which would leave rows that a search writes in between.
    Trials are read by `read_trials`.
    """

    def __init__(self, url: str, engine_kwargs: dict[str, Any], *, create: bool) -> None:
        """As Optuna does it, which would load Alembic to see that tables are of its version."""
        engine = sqlalchemy.create_engine(url, **engine_kwargs)
        if not is_newest(engine):
            engine.dispose()
            template = url.replace("{", "{{").replace("}", "}}")  # Optuna formats it with str.format
            super().__init__(template, engine_kwargs, skip_table_creation=not create)
            return
        if create:  # a newer Optuna may have more of them
            models.BaseModel.metadata.create_all(engine)
        self.url, self.engine, self.engine_kwargs = url, engine, engine_kwargs
        self.scoped_session = orm.scoped_session(orm.sessionmaker(bind=engine))
        self.skip_compatibility_check = False
        self.heartbeat_interval = self.grace_period = None
        self.heartbeat_stale_trial_callback = self.failed_trial_callback = None

    def delete_study(self, study_id: int) -> None:
        with readable(), self.engine.begin() as connection:
            delete_study(connection, study_id)

    def create_new_study(
        self, directions: Sequence[optuna.study.StudyDirection], study_name: str | None = None
    ) -> int:
        self._drop_leftovers(STUDIES)
        return super().create_new_study(directions, study_name)

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        self._drop_leftovers(TRIALS)  # Optuna's cache calls this one, too
        return super()._create_new_trial(study_id, template_trial)

    def _drop_leftovers(self, new: sqlalchemy.Table) -> None:
        with readable(), self.engine.begin() as connection:
            drop_leftovers(connection, new)

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        wanted = None if states is None else [state for state in TrialState if state in states]
        with _create_scoped_session(self.scoped_session) as session:
            models.StudyModel.find_or_raise_by_id(study_id, session)
            rows = sorted(included_trial_ids)
            return read_trials(session.connection(), study_id, wanted, rows, trial_id_greater_than)


def resolve_url(given: str | None) -> str:
    """The database URL: as given, else from HPSEARCH_STORAGE, else `sqlite:///hpsearch.db`.

    A plain path is taken as a SQLite file, and a server's URL without a driver gets the one that our extras
    install. Raises `UrlError` for an empty text, as an unset shell variable leaves it.
    """
    if given is not None and not given.strip():
        raise UrlError("the storage is an empty text; write a file, or a database URL")
    url = given or os.environ.get("HPSEARCH_STORAGE") or DEFAULT_URL
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "sqlite:///" + url.replace("%", "%25").replace("?", "%3F")  # their meaning in a URL
    name, _, driver = scheme.partition("+")
    name = _NAMES.get(name, name)
    driver = driver or _DRIVERS.get(name, "")
    return f"{name}+{driver}://{rest}" if driver else url


def sqlite_file(url: str) -> Path | None:
    """The file behind a SQLite URL, absolute; None where the URL names a server."""
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    return Path(str(parsed.database)).absolute()


def open_storage(url: str, *, create: bool = False, wait: float | None = None) -> optuna.storages.RDBStorage:
    """Open the database at `url`; create it if it does not exist and `create` is set.

    `wait` is how many seconds SQLite waits for another program's lock, during which no signal is handled.

    A server's database must exist; `create` makes its tables. Raises `StorageError` where the database is
    missing, not writable, not a database, or in another Optuna's schema, and `DatabaseUnavailable` where
    another program has locked it for too long.
    """
    file, shown = sqlite_file(url), hidden(url)
    if file is not None:
        wait = BUSY_SECONDS if wait is None else min(wait, BUSY_SECONDS)
        check_file(file, create=create, wait=wait)
        options = _file_options(file, wait)
    else:
        url, connect_args = _without_password(_parse(url))
        _check_server(url, connect_args, shown, create=create)
        # A connection may have died while it was idle.
        options = {"connect_args": connect_args, "pool_pre_ping": True}
    try:
        storage = _opened(url, options, create=create)
    except exc.SQLAlchemyError as error:
        refuse_damage(file, error)
        if "database is locked" in cause(error):  # SQLite's words
            raise DatabaseUnavailable(cause(error)) from error
        raise StorageError(f"cannot open the database {shown}: {cause(error)}") from error
    except RuntimeError as error:  # the tables are of another version
        older = "storage upgrade" in str(error)
        advice = f"back it up (hpsearch backup), then: optuna storage upgrade --storage {shown}"
        raise StorageError(
            f"the database {shown} was made by {'an older' if older else 'another'} Optuna than "
            f"{optuna.__version__}, which is here: {advice if older else error}"
        ) from error
    except optuna.exceptions.StorageInternalError as error:  # no tables at all
        refuse_damage(file, error.__cause__)
        raise StorageError(
            f"the database {shown} is not one this Optuna can read: {cause(error.__cause__ or error)}"
        ) from error
    if file is not None:
        sqlalchemy.event.listen(storage.engine, "handle_error", partial(give_up, file))
    weakref.finalize(storage, storage.engine.dispose)  # or a server keeps its side open
    return storage


@dataclass(frozen=True)
class Tables:
    """A database that is read without Optuna's storage."""

    engine: sqlalchemy.Engine


def open_tables(url: str) -> Tables | optuna.storages.RDBStorage:
    """Open the database at `url` to read its tables; raises as `open_storage` does.

    A file with tables of this Optuna's version needs no more than an engine.
    """
    file = sqlite_file(url)
    if file is None:
        return open_storage(url)
    check_file(file, create=False)
    engine = sqlalchemy.create_engine(url, **_file_options(file, BUSY_SECONDS))
    if is_newest(engine):
        sqlalchemy.event.listen(engine, "handle_error", partial(give_up, file))
        weakref.finalize(tables := Tables(engine), engine.dispose)
        return tables
    engine.dispose()
    return open_storage(url)


def _file_options(file: Path, wait: float) -> dict[str, Any]:
    """The options of an engine for a SQLite file, which is only read where it cannot be written."""
    if is_writable(file):
        return {"connect_args": {"timeout": wait, "factory": WalConnection}}
    read_only = {"uri": True, "timeout": wait, "check_same_thread": False}
    return {"creator": partial(sqlite3.connect, uri_of(file), **read_only)}


def _opened(url: str, options: dict[str, Any], *, create: bool) -> optuna.storages.RDBStorage:
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return _Storage(url, options, create=create)
        except exc.SQLAlchemyError as error:
            # Another process creates the tables at the same time: the next attempt finds them.
            message = cause(error)
            together = "already exists" in message or "alembic_version" in message
            if not create or not together or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _parse(url: str) -> sqlalchemy.URL:
    try:
        parsed = sqlalchemy.make_url(url)
    except (exc.ArgumentError, ValueError):  # ValueError: an invalid port
        # It is unknown which part is the password, and the cause quotes some of it.
        scheme = url.partition("://")[0]
        raise UrlError(f'"{scheme}://..." is not a database URL; write {FORMS}') from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise UrlError(
                f'"{hidden(url)}" is in memory and gone when the command ends; write sqlite:///FILE'
            )
        if parsed.query or "?" in url:
            raise UrlError(
                f'"{hidden(url)}": a "?" in a SQLite URL starts options, which are not supported here'
            )
    elif backend not in _DRIVERS:
        raise UrlError(f'{hidden(url)}: studies cannot be stored in "{backend}"; write {FORMS}')
    elif url.count("@") > 1:
        raise UrlError(f'{hidden(url)}: an "@" that is part of a name or password must be written %40')
    return parsed


def _without_password(parsed: sqlalchemy.URL) -> tuple[str, dict[str, Any]]:
    """The URL to open, and further arguments for its driver: the password and timeouts."""
    query = dict(parsed.query)
    password = query.pop("password", parsed.password)
    driver = parsed.drivername.partition("+")[2]
    arguments: dict[str, Any] = {k: v for k, v in _TIMEOUTS.get(driver, {}).items() if k not in query}
    if password is not None:
        # PyMySQL would encode a text in Latin-1, which has few letters and is not what servers expect.
        arguments["password"] = str(password).encode() if driver == "pymysql" else str(password)
    url = sqlalchemy.URL.create(
        parsed.drivername, parsed.username, None, parsed.host, parsed.port, parsed.database, query
    )
    return url.render_as_string(hide_password=False), arguments


def _check_server(url: str, connect_args: dict[str, Any], shown: str, *, create: bool) -> None:
    """Raise `StorageError` for an unreachable server, or a database without studies unless `create`."""
    try:
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, connect_args=connect_args)
        with engine.connect() as connection:
            tables = set(sqlalchemy.inspect(connection).get_table_names())
    except (ImportError, exc.NoSuchModuleError) as error:
        raise StorageError(_missing_driver(url, shown, error)) from error
    except exc.SQLAlchemyError as error:
        raise StorageError(f"cannot open the database {shown}: {cause(error)}") from error
    except TypeError as error:  # PyMySQL takes a URL's options as arguments
        raise StorageError(f"cannot open the database {shown}: {error}") from error
    taken = tables & set(models.BaseModel.metadata.tables)
    if taken and not {"studies", "version_info"} <= tables:
        raise StorageError(
            f"the database {shown} is another application's: it has a table of its own named "
            f'"{min(taken)}"; choose another database'
        )
    if not taken and not create:
        raise StorageError(
            f"there are no studies in {shown}; a search creates one (hpsearch run SPACE)",
            code="database-missing",
        )


def _missing_driver(url: str, shown: str, error: Exception) -> str:
    name = url.partition("://")[0].partition("+")[0]
    advice = f"pip install 'hpsearch[{_EXTRAS[name]}]'"
    if not url.startswith(f"{name}+{_DRIVERS[name]}:"):
        advice = f"install that one, or write {name}+{_DRIVERS[name]}://... and {advice}"
    return f"the database {shown} needs a driver that is not installed ({error}): {advice}"


def check_file(file: Path, *, create: bool, wait: float = BUSY_SECONDS) -> None:
    """Raise `StorageError` where the file is not, or with `create` cannot become, a database of studies."""
    if file.is_dir():
        raise StorageError(f"{file} is a folder, not a database file")
    if not file.exists():
        if not create:
            raise StorageError(
                f"there is no database {file}; a search creates it (hpsearch run SPACE)",
                code="database-missing",
            )
        if not file.parent.is_dir():
            raise StorageError(f"there is no folder {file.parent} for the database {file.name}")
        if not os.access(file.parent, os.W_OK):
            raise StorageError(
                f"the folder {file.parent} cannot be written, but the database {file.name} belongs there"
            )
        try:
            _make(file)
        except (OSError, exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            refuse_damage(file, error)
            refuse_damage(file, error.__cause__)
            why = cause(error.__cause__ or error)
            raise StorageError(f"cannot create the database {file}: {why}") from error
        return
    logs = (file.with_name(f"{file.name}-{name}") for name in ("journal", "wal", "shm"))
    for path in (file, *logs):
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise StorageError(f"{path} is not a regular file, so not part of a database")
    if create and not is_writable(file):
        raise StorageError(f"the database {file} or its folder cannot be written")
    # Only SQLite opens the file: where a process closes a descriptor of its own, the system releases all of
    # its locks on the file, and others would remove the log that its connections still use.
    if not os.access(file, os.R_OK):
        raise StorageError(f"cannot read the database {file}: {os.strerror(errno.EACCES)}")
    size = file.stat().st_size
    if 0 < size < 512:  # SQLite's smallest page
        raise StorageError(f"{file} is not a SQLite database")
    if size:
        _check_tables(file, wait)
    elif not create:
        raise StorageError(
            f"the database {file} is empty; a search fills it (hpsearch run SPACE)", code="database-missing"
        )


def _make(file: Path) -> None:
    """Create a database under another name, then move it: others see all of its tables, or no file."""
    beside = tempfile.TemporaryDirectory(prefix=".hpsearch-", dir=file.parent, ignore_cleanup_errors=True)
    with beside as folder:
        made = Path(folder) / "new.db"
        made.touch()  # with the umask: SQLite itself would never let a group write
        _fill(made)
        try:
            os.link(made, file)
        except FileExistsError:
            pass  # another process was faster
        except OSError:  # a file system without hard links
            made.rename(file)


def _fill(file: Path) -> None:
    """Make Optuna's tables in an empty file."""
    engine = sqlalchemy.create_engine(resolve_url(str(file)), connect_args={"factory": WalConnection})
    with engine.begin() as connection:
        make_tables(connection)
    engine.dispose()  # the last connection writes the log into the file


def _begins_as_database(file: Path) -> bool:
    with file.open("rb") as stream:  # that SQLite cannot use: nobody has a lock on it
        return stream.read(16) == b"SQLite format 3\x00"


def _check_tables(file: Path, wait: float) -> None:
    """Raise `StorageError` for another application's database, before it is changed in any way."""
    try:
        with closing(sqlite3.connect(uri_of(file), uri=True, timeout=wait)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            computed = _computed(connection)
    except sqlite3.OperationalError as error:
        if "database is locked" in str(error):
            raise DatabaseUnavailable(str(error)) from error
        raise StorageError(f"cannot open the database {file}: {error}") from error
    except sqlite3.Error as error:
        if error.sqlite_errorname == "SQLITE_NOTADB" and not _begins_as_database(file):
            raise StorageError(f"{file} is not a SQLite database") from error
        raise StorageError(damaged(file, str(error))) from error
    if tables and not {"studies", "version_info"} <= tables:
        raise StorageError(f"the database {file} is another application's; choose another file")
    if computed:
        raise StorageError(
            f"the database {file} has a {computed}, which Optuna does not create and which may never end; "
            "another program has changed the database"
        )


def _computed(connection: sqlite3.Connection) -> str:
    """A view, trigger or computed column in place of, or in, one of Optuna's tables; empty without any."""
    ours = {table.lower() for table in models.BaseModel.metadata.tables}
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    for kind, name, table, sql in rows.fetchall():
        if str(table).lower() in ours:
            if str(sql).upper().startswith("CREATE VIRTUAL"):
                return f'virtual table "{name}"'
            if kind not in ("table", "index"):
                return f'{kind} "{name}"'
            columns = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
            for column, hidden_as in columns.fetchall():
                if hidden_as:
                    return f'computed column "{column}" of the table "{table}"'
    return ""
