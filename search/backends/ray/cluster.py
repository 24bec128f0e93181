"""The Ray of a search: one that it starts on this machine, or a cluster that it joins quietly and checks."""

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
import time
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
from ray.exceptions import NodeDiedError, TaskUnschedulableError
from ray.job_config import JobConfig

from ....objectives.user.surroundings import variables_set
from ....storage.files import remove_folder
from ...errors import SearchError, UsageError
from ..resources import Node
from . import probe
from .files import run_on, temporary_folder

OBJECT_STORE = 256 << 20  # bytes, for reports and small files
CONNECT_SECONDS = 5.0  # for a cluster to answer
JOIN_SECONDS = 60.0  # for each of its nodes

LOOPBACK = "127.0.0.1"
# Parts of the driver's environment that trials on other nodes get, like Tune's own actors.
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")

_raylet: Any = ray._raylet  # its type stubs lack the names for agents
AGENT = re.compile(r"^(--\w+_agent_command=).*", re.DOTALL)
PORTS = (
    _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
    _raylet.METRICS_AGENT_PORT_NAME,
    _raylet.METRICS_EXPORT_PORT_NAME,
    _raylet.RUNTIME_ENV_AGENT_PORT_NAME,
)

_importing: set[str] = set()  # nodes that can import hpsearch
START_ONE = "start one with `ray start --head`, or give no address, for a Ray of this search"
QUIET_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune prints a table even where it is told not to
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # five files for each trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # signals belong to the driver
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_WARN_THRESHOLD_S": "3600",  # a slow driver waits for its database, and says so
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # nobody resumes from Tune's own files
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",  # start actors side by side; the searcher limits them
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",  # workers for tasks: ours are actors, which get their own
}


@contextmanager
def connected(address: str | None, machine: Node) -> Iterator[bool]:
    """Be connected to Ray: to the one of this process, to the one at `address`, or to one started here.

    `address` comes from `answering_address`. Yields whether the Ray was started here.
    """
    with ExitStack() as stack:
        stack.enter_context(variables_set(QUIET_ENVIRONMENT))
        if ray.is_initialized():  # by a notebook, or a test
            yield False
            return
        # Ray prints the logs of dying nodes whatever its settings.
        stack.enter_context(replaced(worker, "print_to_stdstream", lambda data, ignore_prefix: None))
        if address is None:
            _start(stack, machine)
        else:
            _join(address)
        stack.callback(ray.shutdown)
        yield address is None


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for files that Ray writes and nobody reads again."""
    folder = temporary_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


def dead_processes() -> list[str]:
    """Processes of the Ray started here that have ended: `raylet`, `gcs_server`."""
    here = worker._global_node
    if here is None:
        return []
    return [kind for kind, _ in here.dead_processes() if kind in ("raylet", "gcs_server")]


def open_ports() -> list[str]:
    """The ports that this process and its children open for other machines: `raylet *:34567`."""
    here = psutil.Process()
    return [
        f"{process.name()} {ip_address(connection.laddr.ip)}:{connection.laddr.port}"
        for process in (here, *here.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and not _is_loopback(connection.laddr.ip)
    ]


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def nodes() -> list[Node]:
    """The resources of the nodes of the connected Ray."""
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
            version = _answer(reference, node["NodeID"])
        except Exception as error:
            reason = str(error).strip().splitlines()[-1]
            raise UsageError(
                f"the node {name} of the cluster cannot import hpsearch: {reason}\n"
                f"Install it into the Python that ran `ray start` there: pip install hpsearch=={own}"
            ) from error
        if version is None:
            continue
        if version != own:
            raise UsageError(
                f"the node {name} of the cluster has hpsearch {version}, but this is {own}: install the same"
            )
        _importing.add(node["NodeID"])


def _answer(reference: ray.ObjectRef[str], node: str) -> str | None:
    """The version of hpsearch on a node; None where the node leaves the cluster meanwhile.

    A node that has just come, or gone, is not known as such everywhere in the cluster at once.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            return ray.get(reference, timeout=JOIN_SECONDS)
        except (TaskUnschedulableError, NodeDiedError):
            if all(each["NodeID"] != node for each in _alive()):
                return None
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
        reference = run_on(node, probe.version)


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _start(stack: ExitStack, machine: Node) -> None:
    """Start a Ray that other users' processes cannot join. Raises `SearchError`."""
    # Ray would write a token into the user's home. It reads one once per process, so this one stays.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Start three Python processes fewer: the autoscaler, the log monitor, and what is left of the dashboard.
    # None would mean True for the log monitor.
    fewer: Any = partial(parameter.RayParams, include_log_monitor=False, no_monitor=True)  # type: ignore[arg-type]
    stack.enter_context(replaced(parameter, "RayParams", fewer))
    stack.enter_context(replaced(services, "start_api_server", lambda *args, **options: (None, None)))
    # Ray would put the current folder first on its processes' path, where a user's numpy.py, or hpsearch.py,
    # would hide theirs. Objectives run in processes of our own, and are found from there.
    stack.enter_context(replaced(JobConfig, "_runtime_env_has_working_dir", lambda config: True))
    stack.enter_context(replaced(services, "start_ray_process", _without_agents(services.start_ray_process)))
    # Ray takes the machine's outer address for the local one, and then listens on all addresses.
    stack.enter_context(replaced(services, "resolve_ip_for_localhost", lambda host: host))
    logging.getLogger("ray._private.authentication").setLevel(
        logging.CRITICAL
    )  # reports that there is a token
    try:
        _init(
            address="local",
            _node_ip_address=LOOPBACK,
            num_cpus=int(machine.cpus),
            num_gpus=int(machine.gpus),
            _memory=machine.memory,
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            # Ray's folder is writable for all users; the folder around it keeps them out.
            _temp_dir=str(stack.enter_context(scratch()) / "r"),
        )
    except Exception as error:  # Ray raises anything
        raise SearchError(f"Ray does not start on this machine: {_last_line(error)}") from error


def _without_agents(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start Ray's processes as `start` does, but a raylet without its two agents, each a Python process.

    One serves a dashboard that does not exist, the other creates environments that none of our actors needs.
    A raylet ends when its agents do, so a process that waits for the raylet's end takes their place.
    """

    def begin(command: list[str], process_type: str, **options: Any) -> Any:
        if process_type == PROCESS_TYPE_RAYLET:
            words = dict(word.removeprefix("--").partition("=")[::2] for word in command)
            for port in PORTS:  # as Ray itself notes that nobody listens
                _raylet.persist_port(words["session_dir"], words["node_id"], port, -1)
            command = [AGENT.sub(r"\1cat", word) for word in command]
        return start(command, process_type, **options)

    return begin


def _join(address: str) -> None:
    """Connect to the cluster at an address.

    Raises `SearchError` where there is none, or where it refuses us, and `UsageError` where its processes
    could not start in a copy of this folder.
    """
    if names := shadowing_names(Path.cwd()):
        raise UsageError(
            f"{', '.join(names)} in {Path.cwd()}: Ray's processes on the cluster search this folder first "
            "and would load that instead of their own modules; rename it, or run in another folder"
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


def shadowing_names(folder: Path) -> list[str]:
    """Files of a folder with the name of a module that this process has loaded from elsewhere.

    Modules that are built into Python, or frozen, cannot be shadowed.
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


def answering_address(address: str) -> str:
    """The host and port of a cluster that answers. Ray itself would retry one that does not for ever.

    Raises `UsageError` for an invalid address, `SearchError` where nothing answers.
    """
    if ray.is_initialized():
        message = "this process is connected to a Ray cluster already; give no address of one"
        raise UsageError(message, code="ray-address")
    if address.startswith("ray://"):
        raise UsageError(
            f"with {address} Ray's client would run the search, and write its database, on the cluster's "
            "head node. Run hpsearch on a node of the cluster, with the address auto",
            code="ray-address",
        )
    try:
        where = services.canonicalize_bootstrap_address(address) if address == "auto" else address
    except ConnectionError as error:
        raise SearchError(f"no Ray cluster runs on this machine; {START_ONE}") from error
    except (ValueError, OSError) as error:  # from the environment, in place of auto
        raise UsageError(f"RAY_ADDRESS={os.environ.get('RAY_ADDRESS')}: {_last_line(error)}") from error
    host, _, port = str(where).rpartition(":")
    if where is None or not host or not port.isdecimal():
        message = f"{address} is not a Ray cluster's address: write auto, or host:port such as 10.0.0.1:6379"
        raise UsageError(message, code="ray-address")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SearchError(f"no Ray cluster answers at {where} ({error}); {START_ONE}") from error
    return where


def _last_line(error: BaseException) -> str:
    """The last line of an error of Ray's, without its advice."""
    return str(error).strip().splitlines()[-1].partition(" Note: ")[0]


def _init(**options: Any) -> None:
    """`ray.init`, which would set its own SIGTERM handler: signals keep the handlers that they have."""
    with ExitStack() as stack:
        aside = stack.enter_context(_stderr_aside())
        stack.enter_context(replaced(utils, "set_sigterm_handler", lambda handler: None))
        # Ray would send the whole cluster our command line, which may hold a database's password.
        stack.enter_context(replaced(utils, "get_entrypoint_name", lambda: "hpsearch"))
        try:
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        except Exception as error:
            aside.seek(0)
            if b"InvalidAuthToken" in aside.read():  # the exception itself does not say so
                raise ConnectionError("it has another token than RAY_AUTH_TOKEN, or none is set") from error
            raise
        # Ray's C++ has set a handler before ours, which aborts the process three seconds after the signal.
        if threading.current_thread() is threading.main_thread() and callable(
            ours := signal.getsignal(signal.SIGTERM)
        ):
            signal.signal(signal.SIGTERM, ours)


@contextmanager
def replaced(module: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replace a private function of Ray's for a while."""
    original = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def _stderr_aside() -> Iterator[IO[bytes]]:
    """Keep what Ray's C++ prints while it connects off the terminal: it goes to the file that this yields."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with tempfile.TemporaryFile() as aside:
            os.dup2(aside.fileno(), 2)
            yield aside
    finally:
        os.dup2(saved, 2)
        os.close(saved)
