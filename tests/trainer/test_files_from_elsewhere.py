"""Files of tensors that anybody may have written: refused in one sentence, before they cost memory."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.objectives.gpt.lora import problems_of_files
from hpsearch.trainer.checkpoint import (
    CHECKPOINT,
    Tensors,
    load_checkpoint,
    read_tensors,
    save_checkpoint,
    write_tensors,
)
from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.errors import CheckpointError, ConfigError
from hpsearch.trainer.guides.footprint import shape_of
from hpsearch.trainer.header import MAX_HEADER_BYTES, SHIPPED_BASE
from hpsearch.trainer.model.base_file import load_base
from hpsearch.trainer.model.gpt import GPT
from hpsearch.trainer.output.export import export, load_model
from hpsearch.trainer.runs.base import RunReport
from hpsearch.trainer.runs.run import GptRun, fit

SHAPE = {"width": 8, "depth": 1, "heads": 2, "max_length": 16}
ROOM = 256 << 20  # bytes that a file of a few kilobytes may cost, whatever it says of itself


def silent(report: RunReport) -> None:
    """For runs that are looked at when they are over."""


def refused(read: Callable[[], object], told: str) -> None:
    """That it ends in one sentence, and takes neither the memory nor the time that the file asks for."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises((CheckpointError, ConfigError), match=told) as caught:
        read()
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < ROOM
    assert time.process_time() - began < 10, "what it asks for would take hours"


def save(folder: Path, parts: dict[str, Tensors], state: dict[str, Any]) -> None:
    save_checkpoint(folder, parts["weights"], parts["optimizer"], parts["best"], state)


def test_a_shape_names_the_weights_of_its_model() -> None:
    shape = Shape(width=8, depth=3, heads=2, max_length=16)
    with torch.device("meta"):
        weights = GPT(shape).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == shape.tensors


# A base


def weights(**changes: Any) -> Tensors:
    return {name: torch.zeros(shape) for name, shape in Shape(**SHAPE | changes).tensors.items()}


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (SHAPE | {"depth": 1_000_000_000}, r"depth: found 1000000000, needs a whole number in \[1, 1000\]"),
        (SHAPE | {"depth": 1000}, r"blocks\.1\.\S+ is none where such a model has \["),
        (SHAPE | {"width": 65536}, r"is \[8, 32\] where such a model has \[65536, 262144\]"),
        (SHAPE | {"width": 2**62}, "width: found 4611686018427387904, needs"),
        (SHAPE | {"heads": 0}, "heads: found 0, needs"),
        (SHAPE | {"heads": 3}, "width: found 8, needs a multiple of heads"),
        (SHAPE | {"heads": -2}, "heads: found -2, needs"),
        (SHAPE | {"depth": "one"}, r"depth: found 'one' \(str\), needs"),
        (SHAPE | {"depth": True}, r"depth: found True \(bool\), needs"),
        (SHAPE | {"depth": 1.0}, r"depth: found 1\.0 \(float\), needs"),
        (SHAPE | {"depth": None}, "depth: found None"),
        (SHAPE | {"depth": "9" * 1_000_000}, "depth: found '999"),
        (SHAPE | {"device": "cuda"}, "its shape is .* needs width, depth, heads, max_length"),
        ({"width": 8}, "its shape is .* needs width, depth, heads, max_length"),
        ([8, 1, 2, 16], "its shape is .* needs width"),
        (None, "its shape is None, needs width"),
    ],
)
def test_a_base_of_an_absurd_shape_is_refused(tmp_path: Path, shape: Any, told: str) -> None:
    path = tmp_path / "base.safetensors"
    write_tensors(path, weights(), {"shape": shape})
    refused(lambda: load_base(path), f"^{re.escape(str(path))}: not a base.*{told}")
    refused(lambda: shape_of(LoraConfig(base=str(path), max_steps=1)).max_length, told)
    [problem] = problems_of_files(LoraConfig(base=str(path), max_steps=1))
    assert re.search(told, problem), "hpsearch validate says so too"


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        (weights() | {"more": torch.zeros(1)}, r"more is \[1\] where such a model has none"),
        (weights(width=16), r"is \[16, 64\] where such a model has \[8, 32\]"),
        (weights() | {"head.weight": torch.zeros(256, 8, dtype=torch.int64)}, "it holds F32, I64, needs F32"),
    ],
)
def test_a_base_of_other_tensors_is_refused(tmp_path: Path, tensors: Tensors, told: str) -> None:
    write_tensors(tmp_path / "base", tensors, {"shape": SHAPE})
    refused(lambda: load_base(tmp_path / "base"), told)


def test_the_base_that_ships_is_of_its_shape() -> None:
    assert load_base(SHIPPED_BASE).shape == load_base().shape


# The header of any file


def raw(header: bytes, content: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + content


def entry(shape: Any, begin: Any = 0, end: Any = 4) -> bytes:
    return json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}}).encode()


READERS: list[Callable[[Path], object]] = [
    load_base,
    read_tensors,
    load_checkpoint,
    load_model,
    lambda path: shape_of(LoraConfig(base=str(path), max_steps=1)).max_length,
]


NONSENSE: list[bytes] = [
    raw(entry([2**40, 2**40]), bytes(4)),
    raw(entry([2**62, 4]), bytes(4)),
    raw(entry([-1]), bytes(4)),
    raw(entry(["one"]), bytes(4)),
    raw(entry(None), bytes(4)),
    raw(entry([1], 0, 2**63), bytes(4)),
    raw(b'{"a": 1}'),
    raw(b'{"__metadata__": 1}'),
    raw(b"[]"),
    raw(b"null"),
    raw(b"[" * 1_000_000),
    raw(b'{"a": ' + b"9" * 10_000 + b"}"),
    raw(b'{"__metadata__": {"hpsearch": "00000000 ' + b"[" * 100_000 + b'"}}'),
    (2**63).to_bytes(8, "little") + b"{}",
    b"",
    b"\0" * 7,
]


def test_a_header_of_nonsense_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for content in NONSENSE:
        for read in READERS:
            with subtests.test(repr(content[:60])):
                path = tmp_path / "adapter.safetensors"
                path.write_bytes(content)
                refused(partial(read, path), f"^{re.escape(str(path))}: ")


OF_NO_WHOLE_FILE: list[dict[str, Any]] = [
    {"shape": [8.9, 32.2]},
    {"shape": [8.0, 32.0]},
    {"shape": ["8", "32"]},
    {"shape": [-8, -32]},
    {"shape": [2**62, 2**62]},
    {"dtype": "F64"},
    {"dtype": "F4096"},
    {"data_offsets": [1024, 0]},
    {"data_offsets": [-1024, 0]},
    {"data_offsets": [0, 2**62]},
    {"data_offsets": [4, 1028]},
    {"data_offsets": [1024, 2048]},
    {"data_offsets": "01"},
]


@pytest.fixture
def parts_of_a_base(tmp_path: Path) -> tuple[Path, dict[str, Any], bytes]:
    """The file of a base, its header and what stands behind."""
    path = tmp_path / "base.safetensors"
    write_tensors(path, weights(), {"shape": SHAPE})
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return path, json.loads(content[8 : 8 + length]), content[8 + length :]


@pytest.mark.parametrize("changes", OF_NO_WHOLE_FILE, ids=str)
def test_a_header_that_does_not_fit_its_file_is_refused_before_a_trial_begins(
    parts_of_a_base: tuple[Path, dict[str, Any], bytes], changes: dict[str, Any]
) -> None:
    path, header, content = parts_of_a_base
    assert header["blocks.0.down.weight"]["data_offsets"] == [0, 1024]
    header["blocks.0.down.weight"] |= changes
    path.write_bytes(raw(json.dumps(header).encode(), content))
    for read in READERS:
        refused(lambda read=read: read(path), "it is not a complete safetensors file")  # type: ignore[misc]


@pytest.mark.parametrize("more", [-1, -1000, 1])
def test_a_file_whose_download_stopped_is_refused_before_a_trial_begins(
    parts_of_a_base: tuple[Path, dict[str, Any], bytes], more: int
) -> None:
    path, header, content = parts_of_a_base
    path.write_bytes(raw(json.dumps(header).encode(), (content + b"\0")[: len(content) + more]))
    for read in READERS:
        refused(lambda read=read: read(path), "it is not a complete safetensors file")  # type: ignore[misc]


@pytest.mark.parametrize("read", READERS)
def test_a_long_header_is_not_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "adapter.safetensors"
    with path.open("wb") as file:
        file.write((100_000_000).to_bytes(8, "little"))
        file.truncate(100_000_008)
    refused(lambda: read(path), "its header has 100,000,000 bytes, the limit is 8,388,608$")


def test_no_header_is_written_that_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="report less often"):
        write_tensors(tmp_path / "x", {}, {"reports": "x" * MAX_HEADER_BYTES})
    assert not (tmp_path / "x").exists()


# An adapter, and a checkpoint


@pytest.fixture
def adapter(tiny_lora: LoraConfig, tmp_path: Path) -> Path:
    fit(tiny_lora, on_report=silent, checkpoint=tmp_path / "run")
    return export(tmp_path / "run", tmp_path / "out")[0]


OF_NO_RUN = [
    ({"objective": "nothing"}, "not the file of a lora or pretrain run"),
    ({"objective": ["lora"]}, "not the file of a lora or pretrain run"),
    ({"lora_r": 1_000_000_000}, "lora_r: found 1000000000, needs"),
    ({"lora_r": 65536}, "holds [0-9,]+ weights, but its configuration has"),
    ({"target_modules": ["qkv"]}, "holds [0-9,]+ weights, but its configuration has"),
    ({"use_dora": True}, "holds [0-9,]+ weights, but its configuration has"),
    ({"finetuning_type": "full"}, "holds [0-9,]+ weights, but its configuration has"),
    ({"base": "/nowhere"}, 'there is no file "/nowhere"'),
    ({"base": 5}, r"base: found 5 \(int\), needs text"),
    ({"base_sha256": "0"}, "the adapters belong to base 0"),
    ({"objective": "pretrain", "width": 65536, "depth": 1000, "heads": 8}, "holds [0-9,]+ weights, but"),
]


@pytest.mark.parametrize(("changes", "told"), OF_NO_RUN)
def test_an_adapter_of_an_absurd_run_is_refused(adapter: Path, changes: dict[str, Any], told: str) -> None:
    tensors, about = read_tensors(adapter)
    about["identity"] |= changes
    write_tensors(adapter, tensors, about)
    refused(lambda: load_model(adapter), told)


@pytest.mark.parametrize("identity", [None, [], "lora", {}])
def test_an_adapter_that_names_no_run_is_refused(adapter: Path, identity: Any) -> None:
    tensors, about = read_tensors(adapter)
    write_tensors(adapter, tensors, about | {"identity": identity})
    refused(lambda: load_model(adapter), "not the file of a lora or pretrain run")


def test_an_adapter_of_other_tensors_is_refused(adapter: Path) -> None:
    tensors, about = read_tensors(adapter)
    name = min(tensors)
    write_tensors(adapter, {f"{n}x" if n == name else n: t for n, t in tensors.items()}, about)
    refused(lambda: load_model(adapter), f"{re.escape(name)} is none where ")


@pytest.mark.parametrize(("changes", "told"), OF_NO_RUN)
def test_a_checkpoint_of_an_absurd_run_is_refused(
    adapter: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    parts, state = load_checkpoint(tmp_path / "run" / CHECKPOINT)
    state["identity"] |= changes
    save(tmp_path / "run", parts, state)
    refused(lambda: load_model(tmp_path / "run" / CHECKPOINT), told)
    refused(lambda: export(tmp_path / "run", tmp_path / "out"), told)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "1"},
        {"reports": []},
        {"reports": [1]},
        {"reports": [{"step": 1}]},
        {"best": None},
        {"stale": {}},
    ],
)
def test_a_checkpoint_with_another_state_is_refused(
    adapter: Path, tiny_lora: LoraConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    parts, state = load_checkpoint(tmp_path / "run" / CHECKPOINT)
    save(tmp_path / "run", parts, state | changes)
    told = f"not the checkpoint of a run: {min(changes)} missing or of the wrong type$"
    refused(lambda: export(tmp_path / "run", tmp_path / "out"), told)
    refused(lambda: GptRun(tiny_lora).resume(tmp_path / "run"), told)


@pytest.mark.parametrize("part", ["weights", "optimizer", "best"])
def test_a_checkpoint_of_other_tensors_is_not_resumed(
    tiny_pretrain: PretrainConfig, tmp_path: Path, part: str
) -> None:
    config = dataclasses.replace(tiny_pretrain, load_best_model_at_end=True)
    fit(config, on_report=silent, checkpoint=tmp_path)
    parts, state = load_checkpoint(tmp_path / CHECKPOINT)
    name = max(parts[part])
    parts[part][name] = torch.zeros(3, 5)
    save(tmp_path, parts, state)
    refused(lambda: GptRun(config).resume(tmp_path), rf"{re.escape(name)} is \[3, 5\] where ")


def test_tensors_that_are_no_part_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"else.a": torch.zeros(1)}, {})
    refused(lambda: load_checkpoint(tmp_path / "x"), r"it holds else\.a; allowed: weights, optimizer, best")
