"""What a model's `config.json` says of how to search it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.hf_lora.defaults import defaults_of

from ..tiny_models import PLACES

BASES = {  # parts of files on the hub, and what suits the model
    "Llama-3.1-8B": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
         "max_position_embeddings": 131072},
        ("causal_lm", 4096, 2.86e-4),
    ),
    "Llama-3.2-1B": ({"model_type": "llama", "hidden_size": 2048}, ("causal_lm", 2048, 4.91e-4)),
    "Qwen3-8B": (
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096},
        ("causal_lm", 4096, 4.73e-4),
    ),
    "a Qwen that sees": (
        {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "hidden_size": None,
         "text_config": {"model_type": "qwen3_5_text", "hidden_size": 2560}},
        ("causal_lm", 2560, 4.91e-4),
    ),
    "a Llama in another model": (
        {"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 4096}},
        ("causal_lm", 4096, 2.86e-4),
    ),
    "a Llama without a type": (
        {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "text_config": {"vocab_size": 5}},
        ("causal_lm", 4096, 2.86e-4),
    ),
    "t5-small, cut": (
        {"architectures": ["T5ForConditionalGeneration"], "d_model": 512, "max_position_embeddings": True},
        ("seq2seq_lm", 512, 3e-4),
    ),
    "a BERT for tokens": (
        {"architectures": ["BertForTokenClassification"], "hidden_size": 768},
        ("sequence_classification", 768, 3e-4),
    ),
    "gpt2": ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768}, ("causal_lm", 768, 3e-4)),
    "t5-small": (
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512,
         "is_encoder_decoder": True},
        ("seq2seq_lm", 512, 3e-4),
    ),
    "t5-small, in 2019": (
        {"architectures": ["T5WithLMHeadModel"], "d_model": 512, "is_encoder_decoder": True},
        ("seq2seq_lm", 512, 3e-4),
    ),
    "bart-large-mnli": (
        {"architectures": ["BartForSequenceClassification"], "model_type": "bart", "d_model": 1024,
         "is_encoder_decoder": True},
        ("sequence_classification", 1024, 3e-4),
    ),
    "bert-base-uncased": (
        {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 768},
        ("sequence_classification", 768, 3e-4),
    ),
    "a RoBERTa that writes": (
        {"architectures": ["RobertaForCausalLM"], "model_type": "roberta", "hidden_size": 768},
        ("causal_lm", 768, 3e-4),
    ),
    "deberta-v3-base": (
        {"model_type": "deberta-v2", "hidden_size": 768},
        ("sequence_classification", 768, 3e-4),
    ),
    "electra-small": (
        {"architectures": ["ElectraForPreTraining"], "model_type": "electra", "hidden_size": 256},
        ("sequence_classification", 256, 3e-4),
    ),
    "distilbert": (
        {"architectures": ["DistilBertForMaskedLM"], "model_type": "distilbert", "dim": 768},
        ("sequence_classification", 768, 3e-4),
    ),
    "of a type of one's own": ({"hidden_size": 64, "architectures": "odd"}, ("causal_lm", 64, 3e-4)),
}  # fmt: skip


def written(folder: Path, config: Any) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return str(folder)


def test_the_task_and_the_learning_rate_are_those_of_the_model(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, (config, (task, width, rate)) in BASES.items():
        with subtests.test(name):
            found = defaults_of(written(tmp_path / name, config))
            assert (found.task, found.width) == (task, width)
            assert found.learning_rate == pytest.approx(rate, rel=0.005)
            fitted = "(2000 / " in found.source
            assert fitted == (rate != 3e-4) and "Tinker cookbook" in found.source


def test_what_a_file_does_not_say_is_told_in_a_message(tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    cases = {
        written(tmp_path / "broken", "{"): "broken/config.json cannot be read: Expecting property name",
        written(tmp_path / "list", [1]): "list/config.json holds list, needs an object",
        written(
            tmp_path / "narrow", {"hidden_size": 0}
        ): "narrow/config.json says no width: needs a whole number",
        written(
            tmp_path / "odd", {"d_model": "512"}
        ): "needs a whole number up to 1,000,000 as hidden_size, n_embd, d_model",
        written(tmp_path / "flag", {"dim": True}): "flag/config.json says no width",
        written(tmp_path / "wide", {"dim": 10**9}): "needs a whole number up to 1,000,000 as hidden_size",
        written(
            tmp_path / "short", {"dim": 8, "n_positions": 1}
        ): "short/config.json has places for 1 token, but a row needs 2",
        "": "is empty, needs a folder",
        str(tmp_path / "empty"): "empty has no config.json: it is not the folder of a transformers model",
        str(tmp_path / "file"): "file is a file; name its folder",
        "~no-such-user/model": "cannot be read: Could not determine home directory",
    }
    for model, told in cases.items():
        with subtests.test(told):
            with pytest.raises(ObjectiveError) as caught:
                defaults_of(model)
            assert str(caught.value).startswith("model: ") and told in str(caught.value)


def test_without_the_hubs_library_a_model_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpsearch.objectives.hf_lora.files.find_spec", lambda name: None)
    told = r"no folder 'me/none' in .*; ids of the hub need pip install 'hpsearch\[hf\]'"
    with pytest.raises(ObjectiveError, match=told):
        defaults_of("me/none")
    assert defaults_of(written(tmp_path / "m", {"n_embed": 32})).width == 32


def test_no_framework_is_loaded(tmp_path: Path) -> None:
    model = written(tmp_path / "m", {"model_type": "llama", "hidden_size": 64})
    code = (
        "import sys; from hpsearch.objectives.hf_lora.defaults import defaults_of\n"
        f"defaults_of({model!r})\n"
        "sys.exit(', '.join({'torch', 'transformers', 'peft', 'huggingface_hub'} & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.extras("peft")
def test_a_model_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("refs", "snapshots"):
        (tmp_path / "models--me--small" / name).mkdir(parents=True)
    (tmp_path / "models--me--small/refs/main").write_text("abc")
    written(tmp_path / "models--me--small/snapshots/abc", BASES["Qwen3-8B"][0])
    assert defaults_of("me/small").width == 4096
    with pytest.raises(
        ObjectiveError, match=r"no model of that name .*; name a folder, or download it \(hf d"
    ):
        defaults_of("me/smal")
    with pytest.raises(ObjectiveError, match="it is not a valid id of the hub"):
        defaults_of("me/no/id")


@pytest.mark.extras("peft")
def test_what_transformers_writes_is_understood(tiny_models: dict[str, str]) -> None:
    tasks = {"llama": "causal_lm", "gpt2": "causal_lm", "t5": "seq2seq_lm", "bert": "sequence_classification"}
    assert {name: defaults_of(folder).task for name, folder in tiny_models.items()} == tasks
    for name, folder in tiny_models.items():
        found = defaults_of(folder)
        assert (found.kind, found.width) == (name, 32)
        assert found.longest_row == (None if name == "t5" else PLACES)
