"""The small GPT that ships, as a GPT-2 of transformers: a model to search with where none is named.

Its folder is in hpsearch's cache. A token is a byte; byte 0, which no text has, ends a document.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import filelock
import torch

from ...trainer.checkpoint import Tensors
from ...trainer.config.shape import VOCABULARY, Shape
from ...trainer.data.token_cache import cache_folder
from ...trainer.errors import ConfigError
from ...trainer.model.base_file import Base, load_base

MADE = 1  # how it is written; with another number it is written anew
LINEARS = {"attn.c_attn": "qkv", "attn.c_proj": "out", "mlp.c_fc": "up", "mlp.c_proj": "down"}
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
NORMS = {"ln_1": "norm_1", "ln_2": "norm_2"}


def shipped_model() -> tuple[Path, str]:
    """Its folder, which is written where it is not there whole, and the sha256 of the base."""
    base = load_base()
    try:
        folder = cache_folder() / "models" / f"gpt-{base.sha256[:16]}-{MADE}"
        if not _is_whole(folder):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(folder.with_name(f".{folder.name}.lock")):  # others may write it too
                _write(base, folder)
    except Exception as error:  # of safetensors, tokenizers, the system: each has its own for a full disk
        raise ConfigError(
            [f"model: the one that ships cannot be written (HPSEARCH_CACHE): {error}"]
        ) from error
    return folder, base.sha256


def _is_whole(folder: Path) -> bool:
    """Who cleans a cache of old files may leave some."""
    return all((folder / name).is_file() for name in FILES)


def _write(base: Base, folder: Path) -> None:
    """All or nothing, in place of what a cleaning or a kill has left."""
    if _is_whole(folder):
        return  # another process was faster
    for left in folder.parent.glob(f"{folder.name}*"):
        shutil.rmtree(left)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        gpt2(base.shape, base.weights).save_pretrained(partial)
        byte_tokenizer(base.shape.max_length).save_pretrained(partial)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@torch.no_grad()
def gpt2(shape: Shape, weights: Tensors, *, activation: str = "gelu") -> Any:
    """GPT-2 that computes what a model of ours does: without dropout, and with biases of zero."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=shape.max_length,
            n_embd=shape.width,
            n_layer=shape.depth,
            n_head=shape.heads,
            activation_function=activation,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    body = model.transformer
    pairs = [
        (body.wte.weight, weights["token.weight"]),
        (body.wpe.weight, weights["position.weight"]),
        (body.ln_f.weight, weights["norm.weight"]),
        (model.lm_head.weight, weights["head.weight"]),
    ]
    for number, block in enumerate(body.h):
        for theirs, ours in (NORMS | LINEARS).items():
            found = weights[f"blocks.{number}.{ours}.weight"]
            # GPT-2 keeps the weights of its linears transposed.
            pairs.append((block.get_submodule(theirs).weight, found.T if theirs in LINEARS else found))
    for parameter, weight in pairs:
        parameter.copy_(weight)
    return model


def byte_tokenizer(length: int) -> Any:
    """Each byte of UTF-8 is its own token, with its value as the id."""
    import tokenizers
    import transformers

    letters = _letters()
    model = tokenizers.models.BPE(vocab={letter: byte for byte, letter in enumerate(letters)}, merges=[])
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = tokenizers.decoders.ByteLevel()
    end = letters[0]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=found, bos_token=end, eos_token=end, pad_token=end, model_max_length=length
    )


def _letters() -> list[str]:
    """The letter that GPT-2's byte-level tokenizers write for each byte: itself, where it can be seen."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256)]
