"""The servers beside whom service.py measures, and their clients. Run by service.py, in the peers' Python.

It imports nothing of hpsearch. `serve` prints its port and waits; `work` begins at a moment, and prints the
seconds of every call as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

STUDY = "bench"
REPORTS = 10
Timed = dict[str, list[float]]
Call = Callable[..., Any]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def value(step: int) -> float:
    return 1.0 / step


# OSS Vizier: its own client and server, studies in SQLite.


def serve_vizier(database: str) -> None:
    from vizier.service import servers

    server = servers.DefaultVizierServer(host="127.0.0.1", database_url=database)
    print(server.endpoint.rpartition(":")[2], flush=True)
    threading.Event().wait()


def vizier(port: int, number: int) -> Call:
    """Makes a client; it runs one trial, each call through `timed`."""
    from vizier.service import clients
    from vizier.service import pyvizier as vz

    clients.environment_variables.server_endpoint = f"127.0.0.1:{port}"
    problem = vz.ProblemStatement()
    problem.search_space.root.add_float_param("x", 0.0, 1.0)
    problem.search_space.root.add_float_param("y", 1e-4, 1.0, scale_type=vz.ScaleType.LOG)
    problem.metric_information.append(vz.MetricInformation("loss", goal=vz.ObjectiveMetricGoal.MINIMIZE))
    config = vz.StudyConfig.from_problem(problem)
    config.algorithm = "RANDOM_SEARCH"
    study = clients.Study.from_study_config(config, owner="bench", study_id=STUDY)

    def trial(timed: Call) -> None:
        (found,) = timed("ask", study.suggest, count=1, client_id=f"worker-{number}")
        for step in range(1, REPORTS + 1):
            timed("report", found.add_measurement, vz.Measurement({"loss": value(step)}, steps=step))
        timed("tell", found.complete, vz.Measurement({"loss": value(REPORTS)}))

    return trial


# Optuna's proxy in front of SQLite, as its documentation starts it.


def serve_optuna(database: str) -> None:
    import optuna

    storage = optuna.storages.get_storage(database)
    optuna.create_study(storage=storage, study_name=STUDY)
    port = free_port()
    print(port, flush=True)
    optuna.storages.run_grpc_proxy_server(storage, host="127.0.0.1", port=port)


def optuna_proxy(port: int, number: int) -> Call:
    """Makes a client; it runs one trial, each call through `timed`."""
    import optuna
    from optuna.distributions import BaseDistribution, FloatDistribution

    space: dict[str, BaseDistribution] = {
        "x": FloatDistribution(0.0, 1.0),
        "y": FloatDistribution(1e-4, 1.0, log=True),
    }
    study = optuna.load_study(
        study_name=STUDY,
        storage=optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=port),
        sampler=optuna.samplers.RandomSampler(seed=number),
    )

    def trial(timed: Call) -> None:
        found = timed("ask", study.ask, space)
        for step in range(1, REPORTS + 1):
            timed("report", found.report, value(step), step)
        timed("tell", study.tell, found, value(REPORTS))

    return trial


# Clients: threads of a process, all of which begin at once.


class TimeUp(Exception):
    """No further call is made."""


def work(make: Callable[[int], Call], numbers: list[int], seconds: float) -> dict[str, Any]:
    """Run trials in a thread for each number until the time is up.

    Once all are ready, stdin says when they begin. Each has connected by a trial that does not count.
    """
    found: list[Timed] = [{"ask": [], "report": [], "tell": []} for _ in numbers]
    failed: list[str] = []
    ready = threading.Barrier(len(numbers) + 1)
    begin: list[float] = []

    def run(number: int, times: Timed) -> None:
        def timed(name: str, call: Call, *arguments: Any, **named: Any) -> Any:
            if time.time() >= begin[0] + seconds:
                raise TimeUp
            began = time.perf_counter()
            answer = call(*arguments, **named)
            times[name].append(time.perf_counter() - began)
            return answer

        try:
            trial = make(number)
            trial(lambda name, call, *arguments, **named: call(*arguments, **named))
        except BaseException:
            ready.abort()  # the others would wait for it
            raise
        ready.wait()
        ready.wait()
        time.sleep(max(0.0, begin[0] - time.time()))
        while True:
            try:
                trial(timed)
            except TimeUp:
                return
            except Exception as error:
                failed.append(f"{type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=run, args=each, daemon=True) for each in zip(numbers, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    ready.wait(timeout=600)
    print("ready", flush=True)
    begin.append(float(sys.stdin.readline()))
    ready.wait()
    for thread in threads:
        thread.join()
    took = time.time() - begin[0]
    calls = {name: [each for times in found for each in times[name]] for name in ("ask", "report", "tell")}
    return {"calls": calls, "failed": failed, "seconds": took}


SERVERS = {"vizier": serve_vizier, "optuna": serve_optuna}
CLIENTS: dict[str, Callable[[int, int], Call]] = {"vizier": vizier, "optuna": optuna_proxy}


def main() -> None:
    what, name, *words = sys.argv[1:]
    if what == "serve":
        SERVERS[name](*words)
        return
    port, seconds, *numbers = words
    make = CLIENTS[name]
    result = work(lambda number: make(int(port), number), [int(each) for each in numbers], float(seconds))
    print(json.dumps(result), flush=True)
    os._exit(0)  # channels of gRPC take seconds to close


if __name__ == "__main__":
    main()
