"""A Ray of our own on this machine, or somebody's cluster: joined quietly, checked, and left as it was."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any

import psutil
import ray
from ray._private import parameter, services, utils, worker
from ray._private.ray_constants import PROCESS_TYPE_RAYLET
from ray.job_config import JobConfig

from ....storage.files import remove_folder
from ...errors import SearchError, UsageError
from ..resources import Node
from . import probe
from .files import run_on, temporary_folder

OBJECT_STORE = 256 << 20  # bytes; reports and small files pass through it
CONNECT_SECONDS = 5.0  # for a cluster to answer
JOIN_SECONDS = 60.0  # for each of its nodes

LOOPBACK = "127.0.0.1"
# What trials on other nodes have of the driver's environment, as by Tune's own actors.
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")

_raylet: Any = ray._raylet  # whose types leave out what is its agents'
AGENT = re.compile(r"^(--\w+_agent_command=).*", re.DOTALL)
PORTS = (
    _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
    _raylet.METRICS_AGENT_PORT_NAME,
    _raylet.METRICS_EXPORT_PORT_NAME,
    _raylet.RUNTIME_ENV_AGENT_PORT_NAME,
)

_importing: set[str] = set()  # nodes that have shown that they can import hpsearch
START_ONE = "start one with `ray start --head`, or leave --ray-address out for a Ray of the search's own"
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune prints a table even where it is told not to
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # five files a trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # signals are the driver's
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_WARN_THRESHOLD_S": "3600",  # what takes long is the driver waiting for a database, which says so
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # nobody goes on from Tune's own files
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",  # start actors side by side; the searcher asks for no more than run
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",  # workers for tasks: ours are actors, which get their own
}


@contextmanager
def connected(address: str | None, machine: Node) -> Iterator[bool]:
    """Be connected to Ray: the one this process is in already, one at `address`, or one of our own.

    `address` is one that `found` gave. Yields whether the Ray is our own.
    """
    with ExitStack() as stack:
        stack.enter_context(_environment(QUIET))
        if ray.is_initialized():  # a notebook's, or a test's
            yield False
            return
        # Ray prints the logs of dying nodes, whatever it is told.
        stack.enter_context(replaced(worker, "print_to_stdstream", lambda data, ignore_prefix: None))
        if address is None:
            _start(stack, machine)
        else:
            _join(address)
        stack.callback(ray.shutdown)
        yield address is None


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for what Ray writes and nobody reads again."""
    folder = temporary_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


def dead_processes() -> list[str]:
    """Processes of the Ray that this process started which are gone: `raylet`, `gcs_server`."""
    here = worker._global_node
    if here is None:
        return []
    return [kind for kind, _ in here.dead_processes() if kind in ("raylet", "gcs_server")]


def heard_outside() -> list[str]:
    """The doors that this process and those it started have open for other machines: `raylet *:34567`."""
    here = psutil.Process()
    return [
        f"{process.name()} {ip_address(door.laddr.ip)}:{door.laddr.port}"
        for process in (here, *here.children(recursive=True))
        for door in process.net_connections("inet")
        if door.status == psutil.CONN_LISTEN and not _is_loopback(door.laddr.ip)
    ]


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def nodes() -> list[Node]:
    """What the nodes of the connected Ray have."""
    resources = [node["Resources"] for node in _alive()]
    return [Node(has.get("CPU", 0.0), has.get("GPU", 0.0), int(has.get("memory", 0))) for has in resources]


def check_importable() -> None:
    """Raise `UsageError` where a node cannot import this hpsearch."""
    asked = {
        run_on(node["NodeID"], probe.version): node for node in _alive() if node["NodeID"] not in _importing
    }
    own = probe.version()
    for reference, node in asked.items():
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            version = ray.get(reference, timeout=JOIN_SECONDS)
        except Exception as error:
            reason = str(error).strip().splitlines()[-1]
            raise UsageError(
                f"the node {name} of the cluster cannot import hpsearch: {reason}\n"
                f"Install it into the Python that ran `ray start` there: pip install hpsearch=={own}"
            ) from error
        if version != own:
            raise UsageError(
                f"the node {name} of the cluster has hpsearch {version}, this is {own}; make them the same"
            )
        _importing.add(node["NodeID"])


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _start(stack: ExitStack, machine: Node) -> None:
    """Start a Ray of our own, which nobody else's processes can join. Raises `SearchError`."""
    # Ray would write a token into the user's home. It reads one once per process, so this one stays.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Three Python processes fewer to start: what scales clusters, what shows us its workers' logs, and what
    # is left of the dashboard. None would be True for the second.
    fewer: Any = partial(parameter.RayParams, include_log_monitor=False, no_monitor=True)  # type: ignore[arg-type]
    stack.enter_context(replaced(parameter, "RayParams", fewer))
    stack.enter_context(replaced(services, "start_api_server", lambda *args, **options: (None, None)))
    # Ray would put the current folder on its processes' path, before what they need themselves: a user's
    # numpy.py, or hpsearch.py. Objectives run in processes of our own, and are found from there.
    stack.enter_context(replaced(JobConfig, "_runtime_env_has_working_dir", lambda config: True))
    stack.enter_context(replaced(services, "start_ray_process", _without_agents(services.start_ray_process)))
    # Ray takes the machine's outer address for it, and then listens on all addresses.
    stack.enter_context(replaced(services, "resolve_ip_for_localhost", lambda host: host))
    logging.getLogger("ray._private.authentication").setLevel(logging.CRITICAL)  # says that there is a token
    try:
        _init(
            address="local",
            _node_ip_address=LOOPBACK,
            num_cpus=int(machine.cpus),
            num_gpus=int(machine.gpus),
            _memory=machine.memory,
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            # Ray lets everybody write into its folder; the one around it keeps other users out.
            _temp_dir=str(stack.enter_context(scratch()) / "r"),
        )
    except Exception as error:  # Ray raises anything
        raise SearchError(f"Ray does not start on this machine: {_last_line(error)}") from error


def _without_agents(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start Ray's processes as `start` does, but a raylet without its two agents, each a Python.

    One tells a dashboard what there is none to hear, the other makes environments, which none of our actors
    has. A raylet ends when they do, so in their place something waits for its end.
    """

    def begin(command: list[str], process_type: str, **options: Any) -> Any:
        if process_type == PROCESS_TYPE_RAYLET:
            words = dict(word.removeprefix("--").partition("=")[::2] for word in command)
            for port in PORTS:  # where Ray itself notes that nobody listens
                _raylet.persist_port(words["session_dir"], words["node_id"], port, -1)
            command = [AGENT.sub(r"\1cat", word) for word in command]
        return start(command, process_type, **options)

    return begin


def _join(address: str) -> None:
    """Connect to the cluster at an address.

    Raises `SearchError` where there is none, or it keeps us out, and `UsageError` where no process of its
    could begin in a copy of this folder.
    """
    if names := in_the_place_of_others(Path.cwd()):
        raise UsageError(
            f"{', '.join(names)} in {Path.cwd()}: Ray's processes on the cluster get this folder first, and "
            "would load that in the place of what they need themselves; give it another name, or start in "
            "another folder"
        )
    try:
        _init(
            address=address,
            runtime_env={
                "working_dir": os.getcwd(),  # the user's own modules and data
                "excludes": ["runs/", "trained/", "tensorboard/", "wandb/", "*.db", "*.db-wal", "*.db-shm"],
                "env_vars": {name: os.environ[name] for name in CREDENTIALS if name in os.environ},
            },
        )
    except (RuntimeError, ConnectionError, TimeoutError, ValueError, ray.exceptions.RayError) as error:
        raise SearchError(f"cannot join the Ray cluster at {address}: {_last_line(error)}") from error


def in_the_place_of_others(folder: Path) -> list[str]:
    """What of a folder has the name of a module that this process has loaded from elsewhere.

    What Python has built in, or frozen, nothing takes the place of.
    """
    names = []
    for entry in sorted(folder.iterdir()):
        if entry.suffix != ".py" and not (entry / "__init__.py").is_file():
            continue
        name = entry.name.removesuffix(".py")
        spec = None if name == "__main__" else getattr(sys.modules.get(name), "__spec__", None)
        origin = Path(getattr(spec, "origin", None) or "built-in")
        if origin.is_absolute() and not origin.is_relative_to(folder):
            names.append(entry.name)
    return names


def found(address: str) -> str:
    """The host and port of a cluster that answers. Ray itself would try one that does not for ever.

    Raises `UsageError` for what is no address, `SearchError` where nothing answers.
    """
    if ray.is_initialized():
        raise UsageError("this process is in a Ray cluster already; leave --ray-address out")
    if address.startswith("ray://"):
        raise UsageError(
            f"--ray-address {address}: Ray's client would run the search, and write its database, on the "
            "cluster's head node. Run hpsearch on a node of the cluster, with --ray-address auto"
        )
    try:
        where = services.canonicalize_bootstrap_address(address) if address == "auto" else address
    except ConnectionError as error:
        raise SearchError(f"no Ray cluster runs on this machine; {START_ONE}") from error
    except (ValueError, OSError) as error:  # what the environment says in place of auto
        raise UsageError(f"RAY_ADDRESS={os.environ.get('RAY_ADDRESS')}: {_last_line(error)}") from error
    host, _, port = str(where).rpartition(":")
    if where is None or not host or not port.isdecimal():
        raise UsageError(f"--ray-address {address}: write auto, or host:port such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SearchError(f"no Ray cluster answers at {where} ({error}); {START_ONE}") from error
    return where


def _last_line(error: BaseException) -> str:
    """What an error of Ray's says in the end, its advice left out."""
    return str(error).strip().splitlines()[-1].partition(" Note: ")[0]


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that Ray and Tune read, for as long as they run."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _init(**options: Any) -> None:
    """`ray.init`, which would take SIGTERM for itself: signals stay with whoever has them."""
    with ExitStack() as stack:
        aside = stack.enter_context(_stderr_aside())
        stack.enter_context(replaced(utils, "set_sigterm_handler", lambda handler: None))
        # Ray would tell the whole cluster our command line, where a database's password may stand.
        stack.enter_context(replaced(utils, "get_entrypoint_name", lambda: "hpsearch"))
        try:
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        except Exception as error:
            aside.seek(0)
            if b"InvalidAuthToken" in aside.read():  # the exception itself knows nothing of it
                raise ConnectionError("it has another token than RAY_AUTH_TOKEN, or none is set") from error
            raise
        # Ray's C++ has put a handler before ours, which aborts the process three seconds after the signal.
        if threading.current_thread() is threading.main_thread() and callable(
            ours := signal.getsignal(signal.SIGTERM)
        ):
            signal.signal(signal.SIGTERM, ours)


@contextmanager
def replaced(module: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Have a private function of Ray's do otherwise."""
    original = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def _stderr_aside() -> Iterator[IO[bytes]]:
    """Keep what Ray's C++ writes while it connects off the terminal: it goes to the file this yields."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with tempfile.TemporaryFile() as aside:
            os.dup2(aside.fileno(), 2)
            yield aside
    finally:
        os.dup2(saved, 2)
        os.close(saved)
