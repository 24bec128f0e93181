"""Tiny models of transformers and rows for them, made on the spot: nothing is downloaded."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

PLACES = 64  # tokens that the models have places for
WORDS = [
    "red",
    "green",
    "blue",
    "cat",
    "dog",
    "bird",
    "sees",
    "likes",
    "finds",
    "the",
    "a",
    "small",
    "large",
    "old",
    "new",
    "house",
    "tree",
    "river",
    "stone",
]


def sentences(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 12))) for _ in range(count)]


def write_rows(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def make_models(folder: Path) -> dict[str, str]:
    """Folders with a Llama, a GPT-2, a T5 and a BERT of random weights, each with a tokenizer of its kind."""
    import tokenizers
    import torch
    import transformers
    from tokenizers.processors import TemplateProcessing

    torch.manual_seed(0)
    special = ["<pad>", "<s>", "</s>", "[CLS]", "[SEP]"]
    found = tokenizers.Tokenizer(tokenizers.models.BPE())
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet
    )
    found.train_from_iterator(sentences(200, seed=1), trainer)
    plain = found.to_str()

    def tokenizer(template: str = "", **tokens: str) -> Any:
        copy = tokenizers.Tokenizer.from_str(plain)
        if template:
            marks = [(mark, copy.token_to_id(mark)) for mark in special if mark in template]
            copy.post_processor = TemplateProcessing(single=template, special_tokens=marks)
        return transformers.PreTrainedTokenizerFast(tokenizer_object=copy, **tokens)

    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    vocabulary, places = {"vocab_size": 320}, {"max_position_embeddings": PLACES}
    end = {"eos_token": "</s>"}
    kinds = {
        "llama": (
            transformers.LlamaForCausalLM(transformers.LlamaConfig(**vocabulary, **size, **places)),
            tokenizer("<s> $A", bos_token="<s>", **end),
        ),
        "gpt2": (
            transformers.GPT2LMHeadModel(
                transformers.GPT2Config(**vocabulary, n_positions=PLACES, n_embd=32, n_layer=2, n_head=2)
            ),
            tokenizer(**end),
        ),
        "t5": (
            transformers.T5ForConditionalGeneration(
                transformers.T5Config(
                    **vocabulary, d_model=32, d_ff=64, d_kv=16, num_layers=2, num_heads=2,
                    pad_token_id=0, decoder_start_token_id=0, eos_token_id=2,
                )
            ),
            tokenizer("$A </s>", pad_token="<pad>", **end),
        ),
        "bert": (
            transformers.BertModel(
                transformers.BertConfig(**vocabulary, **size, **places), add_pooling_layer=False
            ),
            tokenizer("[CLS] $A [SEP]", pad_token="<pad>", cls_token="[CLS]", sep_token="[SEP]"),
        ),
    }  # fmt: skip
    transformers.utils.logging.disable_progress_bar()
    for name, parts in kinds.items():
        for part in parts:
            part.save_pretrained(folder / name)
    return {name: str(folder / name) for name in kinds}
