"""Finds a Hugging Face model on this machine, and checks its files before it is loaded.

A model comes from a folder, or by its id from the hub's cache. If it is in neither, the answer comes at once,
without waiting for a hub that may be unreachable. From then on the model is a folder, and the hub is not
used.
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
NO_CONFIG = f"has no {CONFIG}", "it is not the folder of a transformers model"
TENSORS, INDEX = "*.safetensors", "model.safetensors.index.json"
MODEL_PATTERNS = ("*.json", TENSORS, "*.model", "*.txt", "*.jinja")  # of a model on the hub
# Fields that count parts of a model, and a count above that of any real model: building it would never end.
COUNT_FIELDS, MAX_COUNT = re.compile(r"depth|(\w+_)?(layers?|blocks|experts|groups)"), 10_000
SAMPLES, SAMPLE = 64, 1 << 16  # the number and the bytes of the samples hashed of a large file


def folder_of(config: Config, *, may_download: bool = True) -> Path | None:
    """The folder of the configured model; None for the one that ships, or one that will be downloaded.

    Raises `ConfigError` if there is no such folder, or no model in it.
    """
    if config.model is None:
        return None
    with readable(config.model):
        folder = found(config.model, config.revision)
        if folder is None:
            problem = f"{not_found(config.model, config.revision)}; name a folder, download it"
            return _download(config, f"{problem} (hf download {config.model})", may_download)
        if (lack := _lack(folder)) is None:
            return folder.absolute()
        if not Path(config.model).expanduser().is_dir():
            again = f"model: {folder} {lack[0]}; download it again (hf download {config.model})"
            return _download(config, again, may_download)
        raise ConfigError([f"model: {folder} {': '.join(lack)}"])


def found(model: str, revision: str | None = None) -> Path | None:
    """The folder of a model: the one named, or by an id that in the hub's cache; None if it is in neither.

    Raises `ConfigError` for what can be neither.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ConfigError([f"model: {model} is a file; name its folder"])
    if find_spec("huggingface_hub") is None:
        raise ConfigError([f"{_no_folder(model)}; ids of the hub need pip install 'hpsearch[hf]'"])
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, local_files_only=True)).absolute()
    except HFValidationError:
        raise ConfigError([f"{_no_folder(model)}, and it is not a valid id of the hub"]) from None
    except LocalEntryNotFoundError:
        return None


def not_found(model: str, revision: str | None = None) -> str:
    """The message that a model is neither a folder nor in the cache."""
    from huggingface_hub import constants

    at = f" at revision {revision}" if revision else ""
    return f"{_no_folder(model)}, and no model of that name{at} in the cache ({constants.HF_HUB_CACHE})"


def _no_folder(model: str) -> str:
    return f"model: there is no folder {model!r} in {Path.cwd()}"


def _lack(folder: Path) -> tuple[str, str] | None:
    """What is missing in the folder of a model, and what that means; None if it is complete."""
    if not (folder / CONFIG).is_file():
        return NO_CONFIG
    if not any(path.is_file() for path in folder.glob(TENSORS)):  # a link may be broken
        return f"has no {TENSORS}", "save the model again with save_pretrained, which writes safetensors"
    if (folder / INDEX).is_file() and not (folder / INDEX.removesuffix(".index.json")).is_file():
        weights = _record(folder / INDEX).get("weight_map")
        shards = set(map(str, weights.values())) if isinstance(weights, dict) else ()
        if lost := sorted(name for name in shards if not (folder / name).is_file()):
            return f"has no {lost[0]}", f"{INDEX} names it"
    return None


@contextmanager
def readable(where: str | Path) -> Iterator[None]:
    """Raise errors in reading a model's files as `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: an unknown user's home, or deep JSON
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            [f"model: {getattr(error, 'filename', None) or where} cannot be read: {reason}"]
        ) from error


def _download(config: Config, problem: str, may_download: bool) -> Path | None:
    """Download a model that the cache lacks, or has in part; with `local_files_only` raise the problem."""
    from huggingface_hub import snapshot_download

    if config.local_files_only:
        raise ConfigError([f"{problem}, or set local_files_only: false"])
    if not may_download:
        return None
    name = str(config.model)
    try:
        folder = Path(snapshot_download(name, revision=config.revision, allow_patterns=list(MODEL_PATTERNS)))
    except Exception as error:  # the network, the hub and the disk have errors of several libraries
        first = str(error).strip().splitlines()[0]
        raise ConfigError([f"model: {name} cannot be downloaded: {first}"]) from error
    if lack := _lack(folder):
        raise ConfigError([f"model: {name} {lack[0]} on the hub"])
    return folder.absolute()


def problems_of_files(config: Config) -> list[str]:
    """What rules out a configuration: the files of its model, or a missing package."""
    if config.load_in_4bit and find_spec("bitsandbytes") is None:
        return ["load_in_4bit: needs bitsandbytes, which is not installed: pip install bitsandbytes"]
    try:
        folder = folder_of(config, may_download=False)
        if folder is None and config.model is not None:
            return []  # it will be downloaded
        longest = _longest_shipped() if folder is None else longest_row(about(folder))
    except ConfigError as error:
        return error.problems
    if longest is not None and config.max_length > longest:
        return [too_long(config, longest)]
    return []


def too_long(config: Config, longest: int) -> str:
    """The message that a model takes no rows of this length."""
    return f"max_length: found {config.max_length}, but the model was made for {longest}"


def about(folder: Path) -> dict[str, Any]:
    """The content of `config.json`. Raises `ConfigError` if it is not a JSON object, or absurdly large."""
    config = _record(folder / CONFIG)
    for part in (config, text_config(config)):
        for name, value in part.items():
            if COUNT_FIELDS.fullmatch(name) and isinstance(value, int) and value > MAX_COUNT:
                raise ConfigError([f"model: {folder / CONFIG} has {name} {value:,}, more than {MAX_COUNT:,}"])
    return config


def _record(path: Path) -> dict[str, Any]:
    with readable(path):
        record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ConfigError([f"model: {path} holds {kind_of(record)}, needs an object"])
    return record


def longest_row(about: dict[str, Any]) -> int | None:
    """The most tokens that a model has positions for; None if unlimited, as T5 with relative positions."""
    config = text_config(about)
    if "relative_attention_num_buckets" in config and config.get("model_type") != "mpnet":
        return None
    lengths = (config.get(name) for name in ("max_position_embeddings", "n_positions"))
    return next((number for number in lengths if type(number) is int and number > 0), None)


def text_config(about: dict[str, Any]) -> dict[str, Any]:
    """The part of the configuration for the text model; most models have no other."""
    config = about.get("text_config")
    return config if config and isinstance(config, dict) else about


def _longest_shipped() -> int:
    from ...trainer.config.models import LoraConfig
    from ...trainer.guides.footprint import shape_of

    return shape_of(LoraConfig(max_steps=1)).max_length


def fingerprint(folder: Path) -> str:
    """The SHA-256 of a model's files; of large files only evenly spread samples are hashed.

    Raises `ConfigError` if a file cannot be read.
    """
    digest = hashlib.sha256()
    paths = {path for pattern in MODEL_PATTERNS for path in folder.glob(pattern)}
    for path in filter(Path.is_file, sorted(paths)):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with readable(path), path.open("rb") as file:
            if size <= SAMPLES * SAMPLE:
                digest.update(file.read())
                continue
            for part in range(SAMPLES):
                file.seek(part * (size - SAMPLE) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE))
    return digest.hexdigest()
