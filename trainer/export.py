"""What a finished run leaves to its user: an adapter, or a whole model.

| run | file | what it is |
|---|---|---|
| lora | `adapter.safetensors` | the matrices A and B of each adapted linear |
| lora | `adapter_config.json` | rank, alpha, targets and the sha256 of the base they belong to |
| lora, `merge` | `model.safetensors` | the base with the adapters added in: a plain model |
| lora with `finetuning_type` full or linear, pretrain | `model.safetensors` | the model |

A `model.safetensors` is a base for the next run (`LoraConfig.base`).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from .build import base_model
from .checkpoint import (
    CHECKPOINT,
    Tensors,
    is_checkpoint,
    kept_models,
    load_base,
    load_checkpoint,
    read_tensors,
    save_model,
    write_tensors,
)
from .config import LoraConfig, PretrainConfig, TrainConfig
from .errors import CheckpointError
from .model import GPT
from .pack import LoraPack, Pack, new_pack
from .rules import known_parameters

ADAPTER, ADAPTER_CONFIG, MODEL = "adapter.safetensors", "adapter_config.json", "model.safetensors"


def export(checkpoint: Path, folder: Path, *, merge: bool = False) -> list[Path]:
    """Write the weights of the run whose checkpoint is in `checkpoint` into `folder`; returns the files.

    With early stopping these are the best weights, else the last. Raises `CheckpointError` where there is no
    checkpoint, or the base of the adapters to merge is another one now.
    """
    if not (checkpoint / CHECKPOINT).exists():
        raise CheckpointError(f"{checkpoint}: no checkpoint to export")
    parts, state = load_checkpoint(checkpoint / CHECKPOINT)
    weights = parts["best"] or parts["weights"]
    config = _config_of(state["identity"])
    pack = _pack_of(config, state["identity"])
    if not isinstance(pack, LoraPack) or not isinstance(config, LoraConfig):
        pack.hold(config, weights)
        save_model(folder / MODEL, pack.model.state_dict(), pack.model.shape)
        return [folder / MODEL]
    about = _about_adapter(config, state["identity"]) | {"val_loss": _value(state)}
    write_tensors(folder / ADAPTER, pack.named(weights), about)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    written = [folder / ADAPTER, folder / ADAPTER_CONFIG]
    if merge:
        save_model(folder / MODEL, pack.merged(config, weights), pack.model.shape)
        written.append(folder / MODEL)
    return written


def load_model(path: Path) -> GPT:
    """The model in a file that `export` wrote, ready to evaluate; an adapter is put on its base.

    Of a checkpoint the model that `export` would write. Raises `CheckpointError` where the file cannot be
    read, or the base of an adapter is another one now.
    """
    if is_checkpoint(path):
        parts, state = load_checkpoint(path)
        return _model_of(state, parts["best"] or parts["weights"])
    if path.name == ADAPTER:
        weights, about = read_tensors(path)
        return _model_of(about, weights, by_layer=True)
    return base_model(load_base(path)).eval()


def load_kept(folder: Path, name: str) -> GPT:
    """The model of a run as it was at a checkpoint, by its place in the run's unit; or its `best`.

    The run may go on meanwhile. Raises `CheckpointError`, with what there is, where this is not kept.
    """
    there = kept_models(folder)
    if name not in there:
        more = "load_best_model_at_end keeps it" if name == "best" else "save_total_limit keeps more"
        raise CheckpointError(
            f"{folder}: found no checkpoint {name!r}, there are: {', '.join(there)} ({more})"
            if there
            else f"{folder}: no checkpoint yet"
        )
    path, part = there[name]
    parts, state = load_checkpoint(path)
    if part == "weights" and str(state["reported"]) != name:
        return load_kept(folder, name)  # the run has just renamed its files
    return _model_of(state, parts[part])


def _model_of(about: dict[str, Any], weights: Tensors, *, by_layer: bool = False) -> GPT:
    """A run's model with some weights of it; `by_layer` with the names that adapters' files have."""
    config = _config_of(about["identity"])
    pack = _pack_of(config, about["identity"])
    pack.hold(config, pack.gathered(weights) if by_layer else weights)
    return pack.model.eval()


def _config_of(identity: dict[str, Any]) -> TrainConfig:
    kind = LoraConfig if identity["objective"] == LoraConfig.objective else PretrainConfig
    return kind.from_params(
        {name: value for name, value in identity.items() if name in known_parameters(kind)}
    )


def _pack_of(config: TrainConfig, identity: dict[str, Any]) -> Pack:
    # Whatever it trained in: what a run learns is fp32, and a CPU has no tf32.
    try:
        pack = new_pack(dataclasses.replace(config, precision="fp32", device="cpu"))
    except CheckpointError as error:
        raise CheckpointError(f"the base that this run was trained on: {error}") from error
    if pack.origin != identity["base_sha256"]:
        path = identity["base"] or "the base that ships"
        raise CheckpointError(
            f"the adapters belong to base {identity['base_sha256']}; {path} is {pack.origin}"
        )
    return pack


def _value(state: dict[str, Any]) -> float:
    value: float = state["reports"][-1]["value"]
    return float(state["best"]) if _config_of(state["identity"]).keeps_best else value


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
