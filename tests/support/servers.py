"""Database servers of the tests' own."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy

PASSWORD = "p@ss/w:rd?#50%&+ {e}'\"\\"  # whatever a URL could stumble over


class Server:
    """A database server of the tests' own: on this machine alone, in a folder that goes with it.

    No server likes to be root's, so root runs it as nobody. It ends with this process, however that ends.
    """

    scheme: str
    first: str  # a database that every server has

    def __init__(self, programs: dict[str, str], home: Path) -> None:
        self.programs = programs
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = ThreadPoolExecutor(1)  # the server ends with the thread that started it
        self._names = (f"test_{number}" for number in itertools.count())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def url(
        self, database: str, *, user: str = "searcher", password: str = PASSWORD, port: int | None = None
    ) -> str:
        secret = quote(password, safe="")
        return f"{self.scheme}://{user}:{secret}@127.0.0.1:{port or self.port}/{database}"

    def database(self) -> str:
        """The URL of a new database."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(
            self.url(self.first), poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))

    def make(self) -> None:
        """Fill the folder."""
        raise NotImplementedError

    def words(self) -> list[str]:
        """The command that runs the server."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        with (self.home / "log").open("ab") as log:
            self._process = self._starter.submit(
                subprocess.Popen[bytes],
                self.as_user(self.words()),
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ).result()
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.execute("SELECT 1")
            except sqlalchemy.exc.DBAPIError as error:
                said = (self.home / "log").read_text()
                assert self._process.poll() is None and time.monotonic() < deadline, f"{error}\n{said}"
                time.sleep(0.05)

    def stop(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def run(self, words: list[str]) -> None:
        """Run one of the server's programs to its end."""
        done = subprocess.run(self.as_user(words), cwd=self.home, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    @staticmethod
    def as_user(words: list[str]) -> list[str]:
        nobody = pwd.getpwnam("nobody")
        change = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        return ["setpriv", "--pdeathsig=QUIT", *(change if os.geteuid() == 0 else []), *words]


class Postgres(Server):
    scheme = "postgresql+psycopg"
    first = "postgres"

    def make(self) -> None:
        (self.home / "password").write_text(PASSWORD)
        options = ["--auth=scram-sha-256", "--username=searcher", "--encoding=UTF8", "--no-sync"]
        folders = [f"--pgdata={self.home / 'data'}", f"--pwfile={self.home / 'password'}"]
        self.run([self.programs["initdb"], *options, *folders])

    def words(self) -> list[str]:
        # What a killed server has not written is lost without these two only where the machine dies too.
        settings = {"fsync": "off", "full_page_writes": "off", "port": str(self.port)}
        settings |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.programs["postgres"], "-D", str(self.home / "data"), *given]


class MariaDb(Server):
    scheme = "mysql+pymysql"
    first = "mysql"

    def make(self) -> None:
        quoted = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
        (self.home / "start.sql").write_text(
            f"CREATE USER IF NOT EXISTS searcher@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
            "GRANT ALL ON *.* TO searcher@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        self.run([self.programs["mariadb-install-db"], "--no-defaults", f"--datadir={self.home / 'data'}"])

    def words(self) -> list[str]:
        options = {"datadir": "data", "socket": "socket", "init-file": "start.sql"}
        folders = [f"--{name}={self.home / file}" for name, file in options.items()]
        network = [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
        return [
            self.programs["mariadbd"],
            "--no-defaults",
            *folders,
            *network,
            "--character-set-server=utf8mb4",
        ]


@contextmanager
def running(kind: type[Server], programs: dict[str, str]) -> Iterator[Server]:
    """A server while it is needed."""
    home = Path(tempfile.mkdtemp(prefix="server"))  # pytest's own folders are closed to other users
    server = kind(programs, home)
    try:
        if os.geteuid() == 0:
            shutil.chown(home, "nobody")
        server.make()
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(home)


def found(names: list[str], folders: list[Path]) -> dict[str, str] | None:
    """The programs of a server, from the PATH or the folders that Debian keeps off it."""
    path = os.pathsep.join([os.environ["PATH"], *map(str, folders)])
    programs = {name: shutil.which(name, path=path) for name in names}
    return {name: file for name, file in programs.items() if file} if all(programs.values()) else None
