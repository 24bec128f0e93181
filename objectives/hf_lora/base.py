"""The small GPT that ships, converted to a GPT-2 of transformers: the default model.

Its folder is in hpsearch's cache. A token is a byte; byte 0, which does not occur in text, ends a document.
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

CONVERSION_VERSION = 1  # version of the conversion: a new number invalidates the cache
LINEARS = {"attn.c_attn": "qkv", "attn.c_proj": "out", "mlp.c_fc": "up", "mlp.c_proj": "down"}
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
NORMS = {"ln_1": "norm_1", "ln_2": "norm_2"}


def shipped_model() -> tuple[Path, str]:
    """The folder of the model, which is written unless it is complete, and the sha256 of the base."""
    base = load_base()
    try:
        folder = cache_folder() / "models" / f"gpt-{base.sha256[:16]}-{CONVERSION_VERSION}"
        if not _is_whole(folder):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Other processes may write it too.
            with filelock.FileLock(folder.with_name(f".{folder.name}.lock")):
                _write(base, folder)
    # Safetensors, tokenizers and the system raise different errors for a full disk.
    except Exception as error:
        raise ConfigError(
            [f"model: the default model cannot be written to the cache (HPSEARCH_CACHE): {error}"]
        ) from error
    return folder, base.sha256


def _is_whole(folder: Path) -> bool:
    """Whether all files are there; cleaning a cache of old files may remove some."""
    return all((folder / name).is_file() for name in FILES)


def _write(base: Base, folder: Path) -> None:
    """Write the model atomically, in place of an incomplete one."""
    if _is_whole(folder):
        return  # another process has written it
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
    """A GPT-2 that computes the same as a model of ours: without dropout, and with zero biases."""
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
        for gpt2_name, name in (NORMS | LINEARS).items():
            weight = weights[f"blocks.{number}.{name}.weight"]
            # GPT-2 stores the weights of its linears transposed.
            weight = weight.T if gpt2_name in LINEARS else weight
            pairs.append((block.get_submodule(gpt2_name).weight, weight))
    for parameter, weight in pairs:
        parameter.copy_(weight)
    return model


def byte_tokenizer(length: int) -> Any:
    """A tokenizer with a token for each byte of UTF-8; the id is the byte's value."""
    import tokenizers
    import transformers

    letters = _letters()
    model = tokenizers.models.BPE(vocab={letter: byte for byte, letter in enumerate(letters)}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    end = letters[0]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end, model_max_length=length
    )


def _letters() -> list[str]:
    """The letter that GPT-2's byte-level tokenizers use for each byte: the same letter if it is printable."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(hidden)) for byte in range(256)]
