"""The files that a finished run exports: an adapter, or a whole model.

| run | file | what it is |
|---|---|---|
| lora | `adapter.safetensors` | the matrices A and B of each adapted linear |
| lora | `adapter_config.json` | rank, alpha, targets and the sha256 of their base |
| lora, `merge` | `model.safetensors` | the base with the adapters merged: a plain model |
| lora with `finetuning_type` full or linear, pretrain | `model.safetensors` | the model |

A `model.safetensors` is a base for the next run (`LoraConfig.base`).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..anew import write_anew
from ..checkpoint import (
    CHECKPOINT,
    Tensors,
    is_checkpoint,
    kept_models,
    load_checkpoint,
    read_tensors,
    write_tensors,
)
from ..config.models import KINDS, LoraConfig, TrainConfig
from ..config.rules import known_parameters
from ..errors import CheckpointError, ConfigError
from ..guides.footprint import trained_numbers
from ..model.base_file import load_base, save_model
from ..model.build import base_model, base_of
from ..model.gpt import GPT
from ..packs.factory import new_pack
from ..packs.lora_pack import LoraPack
from ..packs.pack import Pack
from ..runs.base import check_alike, check_state

ADAPTER, ADAPTER_CONFIG, MODEL = "adapter.safetensors", "adapter_config.json", "model.safetensors"


def export(checkpoint: Path, folder: Path, *, merge: bool = False) -> list[Path]:
    """Write the weights of the run whose checkpoint is in `checkpoint` into `folder`; returns the files.

    With early stopping these are the best weights, else the last. Raises `CheckpointError` if there is no
    checkpoint, or the base of the adapters has changed.
    """
    if not (checkpoint / CHECKPOINT).exists():
        raise CheckpointError(f"{checkpoint}: no checkpoint to export")
    parts, state = load_checkpoint(checkpoint / CHECKPOINT)
    check_state(checkpoint / CHECKPOINT, state)
    weights = parts["best"] or parts["weights"]
    config, pack = _pack_of(checkpoint / CHECKPOINT, state, weights)
    if not isinstance(pack, LoraPack) or not isinstance(config, LoraConfig):
        pack.load_for_eval(config, weights)
        save_model(folder / MODEL, pack.model.state_dict(), pack.model.shape)
        return [folder / MODEL]
    value = state["best"] if config.keeps_best else state["reports"][-1]["value"]
    about = _about_adapter(config, state["identity"]) | {"val_loss": float(value)}
    write_tensors(folder / ADAPTER, pack.by_layer(weights), about)
    write_anew(folder / ADAPTER_CONFIG, json.dumps(about, indent=2) + "\n")
    written = [folder / ADAPTER, folder / ADAPTER_CONFIG]
    if merge:
        save_model(folder / MODEL, pack.merged(config, weights), pack.model.shape)
        written.append(folder / MODEL)
    return written


def load_model(path: Path) -> GPT:
    """Load the model in a file of `export`, ready to evaluate; an adapter is applied to its base.

    For a checkpoint, it is the model that `export` would write. Raises `CheckpointError` if the file cannot
    be read, or the base of an adapter has changed.
    """
    if is_checkpoint(path):
        parts, state = load_checkpoint(path)
        return _model_of(path, state, parts["best"] or parts["weights"])
    if path.name == ADAPTER:
        weights, about = read_tensors(path)
        return _model_of(path, about, weights, by_layer=True)
    return base_model(load_base(path)).eval()


def load_kept(folder: Path, name: str) -> GPT:
    """The model of a run at a checkpoint, by its place in the run's unit; or its `best`.

    The run may still be training. Raises `CheckpointError`, naming what is kept, if this checkpoint is not.
    """
    kept = kept_models(folder)
    if name not in kept:
        more = "load_best_model_at_end keeps it" if name == "best" else "save_total_limit keeps more"
        raise CheckpointError(
            f"{folder}: there is no checkpoint {name!r}; there are: {', '.join(kept)} ({more})"
            if kept
            else f"{folder}: no checkpoint yet"
        )
    path, part = kept[name]
    parts, state = load_checkpoint(path)
    if part == "weights" and str(state["reported"]) != name:
        return load_kept(folder, name)  # the run has just renamed its files
    return _model_of(path, state, parts[part])


def _model_of(path: Path, about: dict[str, Any], weights: Tensors, *, by_layer: bool = False) -> GPT:
    """A run's model with these weights; `by_layer` if they have the names of adapter files."""
    config, pack = _pack_of(path, about, weights, by_layer=by_layer)
    pack.load_for_eval(config, pack.stacked(weights) if by_layer else weights)
    return pack.model.eval()


def _config_of(path: Path, identity: Any) -> TrainConfig:
    """The configuration of the run that wrote a file. Raises `CheckpointError` if there is none in it."""
    name = identity.get("objective") if isinstance(identity, dict) else None
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise CheckpointError(f"{path}: not the file of a {' or '.join(KINDS)} run")
    known = known_parameters(kind)
    try:
        return kind.from_params({name: value for name, value in identity.items() if name in known})
    except ConfigError as error:
        problems = "; ".join(error.problems)
        raise CheckpointError(f"{path}: its configuration cannot be trained: {problems:.500}") from error


def _pack_of(
    path: Path, about: dict[str, Any], weights: Tensors, *, by_layer: bool = False
) -> tuple[TrainConfig, Pack]:
    """The configuration of a file, and a pack for its weights, which have been checked against it.

    The number of weights is checked first, so that a file cannot cause more memory to be used than it has.
    """
    identity: Any = about.get("identity")
    config = _config_of(path, identity)
    # Trained weights are fp32 in every precision, and a CPU has no tf32.
    plain = dataclasses.replace(config, precision="fp32", device="cpu")
    count = sum(tensor.numel() for tensor in weights.values())
    try:
        if isinstance(config, LoraConfig):
            base_of(config)
        needed = trained_numbers(config)
        pack = new_pack(plain) if needed == count else None
    except CheckpointError as error:
        raise CheckpointError(f"the base of this run: {error}") from error
    if pack is None:
        raise CheckpointError(f"{path}: holds {count:,} weights, but its configuration has {needed:,}")
    if pack.origin != identity.get("base_sha256"):
        base = identity.get("base") or "the base that ships"
        raise CheckpointError(
            f"the adapters belong to base {identity.get('base_sha256')}; {base} is {pack.origin}"
        )
    expected = pack.init_tensors(plain)
    check_alike(path, weights, pack.by_layer(expected) if by_layer else expected)
    return config, pack


def _about_adapter(config: LoraConfig, identity: dict[str, Any]) -> dict[str, Any]:
    return {
        "r": config.lora_r,
        "lora_alpha": config.strength,
        "use_rslora": config.use_rslora,
        "use_dora": config.use_dora,
        "target_modules": list(config.targets),
        "base_sha256": identity["base_sha256"],
        "identity": identity,
    }
