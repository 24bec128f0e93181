"""Where a Hugging Face model is on this machine, and what its files say before it is loaded.

A model is taken from a folder, or by its id from the hub's cache, at once: where it is not there, nobody
waits for a hub that cannot be reached. From then on it is a folder, and nothing asks the hub again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...trainer.data.texts import kind_of
from ...trainer.errors import ConfigError

if TYPE_CHECKING:
    from .config import Config

CONFIG = "config.json"
TENSORS, INDEX = "*.safetensors", "model.safetensors.index.json"
WANTED = ("*.json", TENSORS, "*.model", "*.txt", "*.jinja")  # of a model on the hub
# Names of what a model has so many of, and more than any has: building them all would not end.
COUNTED, MOST = re.compile(r"depth|(\w+_)?(layers?|blocks|experts|groups)"), 10_000
SAMPLES, SAMPLE = 64, 1 << 16  # of a large file: so many parts of it, of so many bytes


def folder_of(config: Config, *, may_download: bool = True) -> Path | None:
    """The folder of the model that is named; None for the one that ships, or one to be downloaded later.

    Raises `ConfigError` where there is none, or it holds no model.
    """
    if config.model is None:
        return None
    with _readable(config.model):
        folder = Path(config.model).expanduser()
        if not folder.is_dir():
            if folder.exists():
                raise ConfigError([f"model: {config.model} is a file; name the folder that it is in"])
            return _on_the_hub(config, may_download)
        if lack := _lack(folder):
            raise ConfigError([f"model: {folder} {': '.join(lack)}"])
        return folder.absolute()


def _lack(folder: Path) -> tuple[str, str] | None:
    """What of a model is not in a folder, and what that means; None for a whole one."""
    if not (folder / CONFIG).is_file():
        return f"has no {CONFIG}", "no model of transformers is in it"
    if not any(path.is_file() for path in folder.glob(TENSORS)):  # a link may lead nowhere
        return f"has no {TENSORS}", "save it again with save_pretrained, which writes safetensors"
    if (folder / INDEX).is_file() and not (folder / INDEX.removesuffix(".index.json")).is_file():
        weights = _record(folder / INDEX).get("weight_map")
        shards = set(map(str, weights.values())) if isinstance(weights, dict) else ()
        if lost := sorted(name for name in shards if not (folder / name).is_file()):
            return f"has no {lost[0]}", f"{INDEX} names it"
    return None


@contextmanager
def _readable(where: str | Path) -> Iterator[None]:
    """Say what the system, or a text that is none, has against a model's files. Raises `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: ~nobody, or JSON without an end
        told = getattr(error, "strerror", None) or error
        raise ConfigError(
            [f"model: {getattr(error, 'filename', None) or where} cannot be read: {told}"]
        ) from error


def _on_the_hub(config: Config, may_download: bool) -> Path | None:
    """A model of the cache; with `local_files_only: false` also one that is downloaded now."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    name = str(config.model)
    no_folder = f"model: there is no folder {name!r} in {Path.cwd()}"
    try:
        found = Path(snapshot_download(name, revision=config.revision, local_files_only=True)).absolute()
        lack = _lack(found)
        if lack is None:
            return found
        told = f"model: {found} {lack[0]}: fetch it whole (hf download {name})"  # as of one that was cut off
    except HFValidationError:
        raise ConfigError([f"{no_folder}, and no id of the hub is written so"]) from None
    except LocalEntryNotFoundError:
        at = f" at revision {config.revision}" if config.revision else ""
        told = f"{no_folder}, and no model of that name{at} in the cache ({constants.HF_HUB_CACHE}); "
        told += f"name a folder, or fetch it (hf download {name})"
    if config.local_files_only:
        raise ConfigError([f"{told}, or set local_files_only: false"])
    if not may_download:
        return None
    try:
        found = Path(snapshot_download(name, revision=config.revision, allow_patterns=list(WANTED)))
    except Exception as error:  # of the network, of the hub, of the disk: each library's own
        first = str(error).strip().splitlines()[0]
        raise ConfigError([f"model: {name} cannot be downloaded: {first}"]) from error
    if lack := _lack(found):
        raise ConfigError([f"model: {name} {lack[0]} on the hub"])
    return found.absolute()


def model_problems(config: Config) -> list[str]:
    """What rules out a configuration: the files of its model, or a missing package."""
    if config.load_in_4bit and find_spec("bitsandbytes") is None:
        return ["load_in_4bit: needs bitsandbytes, which is not installed: pip install bitsandbytes"]
    try:
        folder = folder_of(config, may_download=False)
        if folder is None and config.model is not None:
            return []  # it is to be downloaded
        longest = _longest_shipped() if folder is None else longest_row(about(folder))
    except ConfigError as error:
        return error.problems
    if longest is not None and config.max_length > longest:
        return [too_long(config, longest)]
    return []


def too_long(config: Config, longest: int) -> str:
    """Says that a model takes no rows of this length."""
    return f"max_length: found {config.max_length}, but the model was made for {longest}"


def about(folder: Path) -> dict[str, Any]:
    """What `config.json` says. Raises `ConfigError` where that is no record of JSON, or of no model."""
    found = _record(folder / CONFIG)
    for told in (found, _of_its_text(found)):
        for name, value in told.items():
            if COUNTED.fullmatch(name) and isinstance(value, int) and value > MOST:
                raise ConfigError([f"model: {folder / CONFIG} has {name} {value:,}: no model has so many"])
    return found


def _record(path: Path) -> dict[str, Any]:
    with _readable(path):
        found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ConfigError([f"model: {path} holds {kind_of(found)}, needs an object"])
    return found


def longest_row(about: dict[str, Any]) -> int | None:
    """The tokens that a model has places for; None where it has no end, as T5 with its relative places."""
    told = _of_its_text(about)
    if "relative_attention_num_buckets" in told and told.get("model_type") != "mpnet":
        return None
    found = (told.get(name) for name in ("max_position_embeddings", "n_positions"))
    return next((number for number in found if isinstance(number, int) and number > 0), None)


def _of_its_text(about: dict[str, Any]) -> dict[str, Any]:
    """What is said of the part of a model that reads text; most have no other."""
    told = about.get("text_config")
    return told if told and isinstance(told, dict) else about


def _longest_shipped() -> int:
    from ...trainer.config.models import LoraConfig
    from ...trainer.guides.footprint import longest_sequence

    return longest_sequence(LoraConfig(max_steps=1))


def fingerprint(folder: Path) -> str:
    """What tells models apart: the SHA-256 of their files, of large ones of parts that lie evenly spread.

    Raises `ConfigError` where one cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted({path for pattern in WANTED for path in folder.glob(pattern) if path.is_file()}):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with _readable(path), path.open("rb") as file:
            if size <= SAMPLES * SAMPLE:
                digest.update(file.read())
                continue
            for part in range(SAMPLES):
                file.seek(part * (size - SAMPLE) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE))
    return digest.hexdigest()
