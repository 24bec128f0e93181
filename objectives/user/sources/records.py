"""Reads the records of TensorBoard's event files and of W&B's run files as they grow."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from .rows import Row, RowReader

MAX_RECORD_BYTES = 1 << 28  # a longer one is no record
WRITTEN = "\0written"  # the column of the time, in seconds, at which a scalar was logged
_EVENT_HEAD = struct.Struct("<QI")  # of a record: its length, and a checksum of that
_CHECKSUM = struct.Struct("<I")  # of a record's content, behind it
_CHECKED_BYTES = 1 << 12  # of a record; in a longer one, only scalars are checked
_WANDB_FILE_HEAD = 7  # bytes
_WANDB_BLOCK = 1 << 15  # bytes
_WANDB_HEAD = struct.Struct("<IHB")  # of a part: a checksum, its length, and its place in the record
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_FLOAT_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "bfloat16", 19: "<f2"}  # of TensorFlow's tensors


class EventRows(RowReader):
    """The scalars of an event file, a row for each. A half record waits."""

    def __init__(self) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        self._event, self._checksum = Event, masked_crc32c
        self._rest = b""
        self._at = 0  # bytes of the file before the rest

    def feed(self, piece: bytes, *, ended: bool = False) -> list[Row]:
        self._rest += piece
        rows: list[Row] = []
        at = 0
        while at + _EVENT_HEAD.size <= len(self._rest) and self.damage is None and self.fault is None:
            length, checksum = _EVENT_HEAD.unpack_from(self._rest, at)
            if self._checksum(self._rest[at : at + 8]) != checksum or length > MAX_RECORD_BYTES:
                self._stop(at, f"no record of at most {MAX_RECORD_BYTES >> 20} MiB begins there")
                break
            begin = at + _EVENT_HEAD.size
            end = begin + length
            if end + _CHECKSUM.size > len(self._rest):
                break
            record = self._rest[begin:end]
            scalars = self._scalars(record)
            if scalars is None or scalars or length <= _CHECKED_BYTES:
                (checksum,) = _CHECKSUM.unpack_from(self._rest, end)
                if scalars is None or self._checksum(record) != checksum:
                    self._stop(at, "its checksum does not match its content")
                    break
            rows += scalars
            at = end + _CHECKSUM.size
        self._rest = self._rest[at:]
        self._at += at
        return rows

    def skip(self, head: bytes, size: int) -> None:
        self._at = size

    def _stop(self, at: int, why: str) -> None:
        """Nothing is read from here on: nobody knows where the next record begins."""
        if self._at + at == 0:
            self.fault = "is not an event file"
        else:
            self.damage = f"at byte {self._at + at:,}, where a record should begin: {why}"

    def _scalars(self, record: bytes) -> list[Row] | None:
        """The rows of a record; None if it cannot be read."""
        try:
            event = self._event.FromString(record)
        except Exception:  # protobuf's own, which differs between its versions
            return None
        numbers = [(value.tag, scalar_of(value)) for value in event.summary.value]
        return [
            {tag: number, "step": event.step, WRITTEN: event.wall_time}
            for tag, number in numbers
            if number is not None
        ]


def scalar_of(value: Any) -> float | None:
    """The number of a value in an event file; None for anything else."""
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    if value.WhichOneof("value") != "tensor" or any(each.size > 1 for each in value.tensor.tensor_shape.dim):
        return None
    tensor = value.tensor
    for numbers in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(numbers) == 1:
            return float(numbers[0])
    kind = _FLOAT_TYPES.get(tensor.dtype)
    if kind is None or not tensor.tensor_content:
        return None
    import numpy as np

    if kind == "bfloat16":
        bits = np.frombuffer(tensor.tensor_content, "<u2").astype("<u4") << 16
        numbers = bits.view("<f4")
    else:
        numbers = np.frombuffer(tensor.tensor_content, kind)
    return float(numbers[0]) if numbers.size == 1 else None


class WandbRows(RowReader):
    """What a run has logged to W&B, a row for each step. A half record waits."""

    def __init__(self) -> None:
        from wandb.proto import wandb_internal_pb2

        messages: Any = wandb_internal_pb2  # whose types differ between versions of protobuf
        self._record = messages.Record
        self._rest = b""
        self._place = 0  # in the rest
        self._at = 0  # in the file
        self._parts = b""  # of a record

    def feed(self, piece: bytes, *, ended: bool = False) -> list[Row]:
        self._rest, self._place = self._rest[self._place :] + piece, 0
        rows: list[Row] = []
        while (record := self._next()) is not None:
            rows += self._history(record)
        return rows

    def skip(self, head: bytes, size: int) -> None:
        self.fault = "is a run of an earlier attempt"

    def _next(self) -> bytes | None:
        """The next whole record; None where there is none yet."""
        if self._at == 0 and not self._skip(_WANDB_FILE_HEAD):
            return None
        while True:
            left = _WANDB_BLOCK - self._at % _WANDB_BLOCK
            if left < _WANDB_HEAD.size:
                if not self._skip(left):
                    return None
                continue
            if self._left < _WANDB_HEAD.size:
                return None
            _, length, place = _WANDB_HEAD.unpack_from(self._rest, self._place)
            if self.fault is not None or self.damage is not None:
                return None
            if place not in (_FULL, _FIRST, _MIDDLE, _LAST) or length > left:
                self._stop()
                return None
            if self._left < _WANDB_HEAD.size + length:
                return None
            begin = self._place + _WANDB_HEAD.size
            part = self._rest[begin : begin + length]
            self._skip(_WANDB_HEAD.size + length)
            self._parts = part if place in (_FULL, _FIRST) else self._parts + part
            if place in (_FULL, _LAST):
                return self._parts

    @property
    def _left(self) -> int:
        """How many bytes are there that were not read."""
        return len(self._rest) - self._place

    def _skip(self, count: int) -> bool:
        """Go over so many bytes, if they are there."""
        if self._left < count:
            return False
        self._place, self._at = self._place + count, self._at + count
        return True

    def _stop(self) -> None:
        """Nothing is read from here on."""
        if self._at == _WANDB_FILE_HEAD:
            self.fault = "is not a run of W&B that can be read; it was written by another version"
        else:
            self.damage = f"at byte {self._at:,}, where a record should begin"

    def _history(self, record: bytes) -> Iterator[Row]:
        try:
            content = self._record.FromString(record)
            if content.WhichOneof("record_type") == "history":
                items = content.history.item
                yield {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
        except Exception as error:  # protobuf's own, which differs between its versions
            self.damage = f"before byte {self._at:,}: a record cannot be read ({error})"


class MlflowRows(RowReader):
    """A metric of an MLflow run: lines of a time, a value and a step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""

    def feed(self, piece: bytes, *, ended: bool = False) -> list[Row]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        cells = [line.decode("utf-8", "replace").split() for line in lines]
        return [{self._name: line[1], "step": line[2]} for line in cells if len(line) >= 3]
