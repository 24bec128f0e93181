"""Reads back what trackers wrote. MLflow and W&B are loaded by the tests that need them: they take long."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from hpsearch.search.exchange.trackers.tensorboard import events

TRACKERS = ("tensorboard", "wandb", "mlflow")


@dataclass(frozen=True)
class Seen:
    """A run in a tracker."""

    curve: list[tuple[int, float]]  # of the metric, as written: a point twice is there twice
    other: dict[int, float]  # of the metric `half`
    params: dict[str, Any]
    final: float | None
    state: str | None


Read = Callable[[str, Path], dict[str, Seen]]


@pytest.fixture
def read() -> Read:
    """The runs in a tracker under a folder, by their names."""

    def find(tracker: str, root: Path) -> dict[str, Seen]:
        return {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}[tracker](root)

    return find


def _tensorboard(root: Path) -> dict[str, Seen]:
    return {folder.name: _event_files(folder) for folder in sorted((root / "tensorboard").glob("*/*"))}


def _event_files(folder: Path) -> Seen:
    scalars: dict[str, list[tuple[int, float]]] = {}
    params: dict[str, Any] = {}
    for file in [*sorted(folder.glob("events.*")), *sorted(folder.glob("hparams/events.*"))]:
        for event in events(file):
            for value in event.summary.value:
                if value.tag == "_hparams_/session_start_info":
                    content = HParamsPluginData.FromString(value.metadata.plugin_data.content)
                    found = content.session_start_info.hparams
                    params = {name: getattr(v, v.WhichOneof("kind")) for name, v in found.items()}
                elif not value.tag.startswith("_hparams_"):
                    scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    final = next((value for _, value in scalars.get("final/loss", [])), None)
    return Seen(
        scalars.get("loss", []), dict(scalars.get("half", [])), params, final, params.get("run/state")
    )


def _wandb(root: Path) -> dict[str, Seen]:
    found = {}
    for file in sorted((root / "wandb").glob("offline-run-*/*.wandb")):
        curve, other = list[tuple[int, float]](), dict[int, float]()
        params, summary, name = dict[str, Any](), dict[str, Any](), ""
        for record in _whole(file):
            if record.HasField("run"):
                name = record.run.display_name
                params = {item.key: json.loads(item.value_json) for item in record.run.config.update}
            for item in record.summary.update:
                summary[item.key or item.nested_key[0]] = json.loads(item.value_json)
            row = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
            if "loss" in row:
                curve.append((row["_step"], row["loss"]))
                other |= {row["_step"]: row["half"]} if "half" in row else {}
        assert name not in found, "one run, one folder"
        found[name] = Seen(curve, other, params, summary.get("final_loss"), summary.get("state"))
    return found


def _whole(file: Path) -> list[Any]:
    """The records of a run that has ended: W&B's service closes its file a moment after that."""
    until = time.monotonic() + 10
    while True:
        found = list(_records(file))
        if any(record.HasField("exit") for record in found):
            return found
        assert time.monotonic() < until, f"{file} ends with no exit"
        time.sleep(0.05)


def _records(file: Path) -> Iterator[Any]:
    """The records of W&B's file: LevelDB's log, whose blocks have 32 KiB, after 7 bytes of its own."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # made when it is imported
    content, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        _, length, kind = struct.unpack_from("<IHB", content, place) if left >= 7 else (0, 0, 0)
        if kind == 0:  # the rest of a block
            place += left
            continue
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield messages.Record.FromString(whole)
            whole = b""


def _mlflow(root: Path) -> dict[str, Seen]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    found = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            histories = {
                name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
                for name in ("loss", "half")
            }
            assert run.info.run_name not in found, "one run is one run"
            found[run.info.run_name] = Seen(
                sorted(histories["loss"]),
                dict(histories["half"]),
                run.data.params,
                run.data.metrics.get("final_loss"),
                run.data.tags.get("state"),
            )
    return found
