"""Exports a finished `hf_lora` run in the formats of peft and transformers.

| file | what it is |
|---|---|
| `adapter_config.json`, `adapter_model.safetensors` | the adapters, for `PeftModel.from_pretrained` |
| `labels.json` | for a classification: the class of each number |
| the tokenizer's files | the tokenizer that the adapters were trained with |
| `merged/`, with `merge` | the base with the adapters merged: a model of transformers |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ...trainer.anew import write_anew
from ...trainer.checkpoint import CHECKPOINT, load_checkpoint
from ...trainer.config.rules import known_parameters
from ...trainer.errors import CheckpointError
from .config import Config
from .model import load_model, load_tokenizer, trained_tensors, with_adapters
from .run import base_of

ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
LABELS, MERGED = "labels.json", "merged"


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the adapters of the run whose checkpoint is in `checkpoint`. Returns the files.

    With early stopping these are the best ones, else the last. Raises `CheckpointError` if there is no
    checkpoint, or the base of the adapters has changed, and `OSError` if the files cannot be written.
    """
    if not (checkpoint / CHECKPOINT).exists():
        raise CheckpointError(f"{checkpoint}: no checkpoint to export")
    parts, state = load_checkpoint(checkpoint / CHECKPOINT)
    identity = state["identity"]
    known = known_parameters(Config)
    # Trained weights are fp32 in every precision, and merging needs the base in full precision.
    plain = {"load_in_4bit": False, "gradient_checkpointing": False, "device": "cpu"}
    config = Config.from_params({name: value for name, value in identity.items() if name in known} | plain)
    model, tokenizer = _model(config, identity)
    with torch.no_grad():
        for name, tensor in trained_tensors(model).items():
            tensor.copy_((parts["best"] or parts["weights"])[name])
    if merge:
        _check_shared(model)
    try:
        return _write(model, tokenizer, identity["classes"], folder, merge=merge)
    except OSError:
        raise
    except Exception as error:  # safetensors and tokenizers raise their own errors for a full disk
        raise OSError(f"{folder}: the model cannot be written: {error}") from error


def _write(model: Any, tokenizer: Any, classes: list[str], folder: Path, *, merge: bool) -> list[Path]:
    model.save_pretrained(folder)
    written = [folder / name for name in ADAPTER]
    written += map(Path, tokenizer.save_pretrained(folder))
    if classes:
        names = dict(enumerate(classes))
        write_anew(folder / LABELS, json.dumps(names, indent=2) + "\n")
        written.append(folder / LABELS)
    if merge:
        model.merge_and_unload().save_pretrained(folder / MERGED)
        tokenizer.save_pretrained(folder / MERGED)
        written += sorted((folder / MERGED).iterdir())
    return written


def _check_shared(model: Any) -> None:
    """Raise `CheckpointError` if merging the adapters of a layer would change another layer too."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name.removeprefix("base_model.model."))
    for same in names.values():
        layers = [name.rpartition(".")[0] for name in same]
        adapted = [layer for layer in layers if layer.endswith(".base_layer")]
        if adapted and len(layers) > 1:
            other = next(layer for layer in layers if layer != adapted[0]).removesuffix(".base_layer")
            raise CheckpointError(
                f"{adapted[0].removesuffix('.base_layer')} has an adapter and shares its weights "
                f"with {other}, which would change too; export the adapter alone"
            )


def _model(config: Config, identity: dict[str, Any]) -> tuple[Any, Any]:
    """The base with adapters, and its tokenizer. Raises `CheckpointError` if the base has changed."""
    folder, sha256 = base_of(config)
    if sha256 != identity["base_sha256"]:
        raise CheckpointError(
            f"the adapters belong to the model {identity['base_sha256']}; {folder} is {sha256}"
        )
    tokenizer = load_tokenizer(folder)
    classes = tuple(identity["classes"])
    model, new = load_model(config, folder, tokenizer, classes, torch.device("cpu"), torch.float32)
    return with_adapters(config, model, new), tokenizer
