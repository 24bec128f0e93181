"""Makes a tiny language model with its tokenizer, and rows to train it on: python tiny.py FOLDER."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

WORDS = [
    "the",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "mat",
    "hat",
    "red",
    "big",
    "and",
    "a",
    "saw",
    "who",
    "what",
    "where",
    "is",
    "it",
    "here",
    "there",
    "yes",
    "no",
]


def make(folder: Path) -> None:
    """Writes the model `tiny-llama`, the data sets `sentences`, `sft` and `dpo`, and `alpaca.json`."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"#<>/|_-+ \n"]
    vocabulary = {word: place for place, word in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=128,
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "tiny-llama")
    fast.save_pretrained(folder / "tiny-llama")

    draw = random.Random(0)

    def words(count: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(count))

    texts = [(f"{words(3)}?", f"{words(4)}.") for _ in range(48)]
    rows = {
        "sentences": [{"text": f"{ask} {answer}"} for ask, answer in texts],
        "sft": [{"prompt": ask, "completion": f" {answer}"} for ask, answer in texts],
        "dpo": [{"prompt": ask, "chosen": f" {answer}", "rejected": f" {words(4)}!"} for ask, answer in texts],
    }
    for name, content in rows.items():
        (folder / name).mkdir()
        for split, part in (("train", content[:36]), ("test", content[36:])):
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    alpaca = [{"instruction": ask, "input": "", "output": answer} for ask, answer in texts]
    (folder / "alpaca.json").write_text(json.dumps(alpaca))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
