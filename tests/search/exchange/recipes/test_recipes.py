"""Files of the frameworks: keys that their schemas have, values that their readers read, nothing lost unsaid."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.search import run
from hpsearch.search.cli import main
from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.recipes import FRAMEWORKS, ConfigFile, for_framework
from hpsearch.search.exchange.recipes.names import OF_ALL, OF_TRL, SAME_NAMES, TRAINING
from hpsearch.search.exchange.recipes.schedules import SCHEDULE_OPTIONS, hf_schedule
from hpsearch.search.trials.yaml_text import text_of
from hpsearch.trainer.config.rules import defaults_of, rules
from hpsearch.trainer.optim.schedule import lr_factor

LORA: Any = ObjectiveInfo("lora").parameters
SCHEDULERS, OPTIMIZERS = (rules(LORA)[name].choices for name in ("lr_scheduler", "optimizer"))
PUBLISHED = {
    name: json.loads((Path(__file__).parent / "published" / f"{name}.json").read_text())
    for name in (*FRAMEWORKS, "peft")
}
# What has a meaning of its own where it is exported, beside its name.
SPECIAL = {
    "eval_steps",
    "eval_strategy",
    "optim",
    "lr_scheduler_type",
    "bf16",
    "fp16",
    "load_best_model_at_end",
    "early_stopping_patience",
}
# Of each parameter of the objective lora a value that is not its default, and what it needs beside it.
OTHER: dict[str, Any] = {
    "learning_rate": 3e-5, "batch_size": 4, "gradient_accumulation_steps": 2, "max_samples": 800, "eval_every": 400,
    "eval_samples": 16, "warmup_ratio": 0.1, "warmup_steps": 7, "lr_scheduler": "cosine", "min_lr_ratio": 0.2,
    "lr_cycles": 3, "lr_power": 3.0, "lr_step_every": 0.2, "lr_gamma": 0.5, "lr_timescale": 0.3, "lr_decay_ratio": 0.4,
    "lr_decay_type": "linear", "lr_rise_ratio": 0.2, "lr_start_divisor": 10.0, "lr_plateau_patience": 2,
    "lr_plateau_factor": 0.7, "lr_plateau_min_delta": 0.01, "weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.95,
    "adam_epsilon": 1e-6, "max_grad_norm": 0.5, "max_length": 64, "early_stopping_patience": 3,
    "early_stopping_min_delta": 0.1, "load_best_model_at_end": True, "save_total_limit": 5, "train_file": "mine.txt",
    "validation_file": "other.txt", "validation_split": 0.2, "text_field": "body", "device": "cpu", "seed": 7,
    "optimizer": "sgd", "momentum": 0.8, "nesterov": True, "lion_beta1": 0.8, "lion_beta2": 0.9,
    "label_smoothing_factor": 0.1, "precision": "fp16", "gradient_checkpointing": True, "deterministic": True,
    "torch_compile": True, "lora_r": 16, "lora_alpha": 24.0, "alpha_over_r": 4.0, "lora_dropout": 0.05,
    "target_modules": ["qkv", "out"], "use_rslora": True, "loraplus_lr_ratio": 16.0, "use_dora": True,
    "base": "mine.safetensors", "finetuning_type": "full", "max_steps": 50, "num_train_epochs": 3,
    "samples_per_epoch": 500,
}  # fmt: skip
BESIDE: dict[str, dict[str, Any]] = {
    "lr_cycles": {"lr_scheduler": "cosine_with_restarts"}, "lr_power": {"lr_scheduler": "polynomial"},
    "lr_timescale": {"lr_scheduler": "inverse_sqrt"},
    "lr_decay_ratio": {"lr_scheduler": "warmup_stable_decay"}, "lr_decay_type": {"lr_scheduler": "warmup_stable_decay"},
    "lr_plateau_patience": {"lr_scheduler": "reduce_on_plateau"},
    "lr_plateau_factor": {"lr_scheduler": "reduce_on_plateau"},
    "lr_plateau_min_delta": {"lr_scheduler": "reduce_on_plateau"},
    "lr_step_every": {"lr_scheduler": "step"}, "lr_gamma": {"lr_scheduler": "step"},
    "lr_rise_ratio": {"lr_scheduler": "one_cycle"}, "lr_start_divisor": {"lr_scheduler": "one_cycle"},
    "momentum": {"optimizer": "sgd"}, "nesterov": {"optimizer": "sgd"}, "lion_beta1": {"optimizer": "lion"},
    "lion_beta2": {"optimizer": "lion"}, "early_stopping_min_delta": {"early_stopping_patience": 2},
    "samples_per_epoch": {"num_train_epochs": 2}, "validation_file": {"train_file": "mine.txt"},
    "text_field": {"train_file": "mine.txt"},
}  # fmt: skip
SOME = st.fixed_dictionaries(
    {"learning_rate": st.sampled_from([1e-3, 3e-5, 1e-16])},
    optional={
        "lr_scheduler": st.sampled_from(SCHEDULERS),
        "optimizer": st.sampled_from(OPTIMIZERS),
        "precision": st.sampled_from(["auto", "fp32", "bf16", "fp16", "tf32"]),
        "min_lr_ratio": st.sampled_from([0.0, 0.1, 1.0]),
        "warmup_ratio": st.sampled_from([0.0, 0.05, 1.0]),
        "finetuning_type": st.sampled_from(["lora", "full", "linear"]),
        "target_modules": st.sampled_from(["all-linear", ["qkv"], ["up", "down", "qkv", "out"]]),
        "train_file": st.sampled_from(["english", "no", "a: b.jsonl", "é\n#.txt", "x.csv.gz", "a\nb.jsonl"]),
        "adam_epsilon": st.floats(1e-37, 1e5),
        "loraplus_lr_ratio": st.sampled_from([1.0, 16.0]),
        "lora_alpha": st.sampled_from([16.0, 12.5]),
        "load_best_model_at_end": st.booleans(),
        "early_stopping_patience": st.integers(0, 2),
        "eval_every": st.integers(1, 300),
    },
)  # fmt: skip
LENGTH = st.sampled_from([{"max_samples": 801}, {"max_steps": 60}, {"num_train_epochs": 2}])


def written(name: str, parameters: dict[str, Any], objective: Any = "lora", study: str = "s") -> ConfigFile:
    content = {
        "objective": objective, "metric": "val_loss", "parameters": parameters, "seed": 5,
        "provenance": {"study": study, "trial": 3, "value": 1.25},
    }  # fmt: skip
    return for_framework(name, content, None)


def check(name: str, found: ConfigFile) -> None:
    """The file is what its framework has keys for, and is read as what was meant."""
    published = PUBLISHED[name]
    assert yaml.safe_load(found.text) == found.values
    assert {*found.values, *found.to_fill} <= set(published["keys"])
    for record in found.values.get("datasets", []):
        assert set(record) <= set(published["datasets"])
    for key in ("lr_scheduler_type", "lr_scheduler"):
        assert found.values.get(key) in (None, *published.get("schedulers", []))
    for key in ("optim", "optimizer"):
        assert found.values.get(key) in (None, *published.get("optimizers", []))
    for what, why in found.lost.items():
        assert f"#   {what}: {why}\n" in found.text


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=50)
@given(parameters=SOME, length=LENGTH, study=st.sampled_from(["lora", "no", "a: #b"]))
def test_any_trial_has_keys_that_are_published(
    name: str, parameters: dict[str, Any], length: dict[str, Any], study: str
) -> None:
    check(name, written(name, parameters | length, study=study))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_parameter_goes_unsaid(subtests: pytest.Subtests, name: str) -> None:
    for parameter in sorted(ObjectiveInfo("lora").known_parameters or ()):
        with subtests.test(parameter):
            base = {"learning_rate": 1e-3} | BESIDE.get(parameter, {})
            more = {parameter: OTHER[parameter]}
            if parameter not in ("max_steps", "num_train_epochs") and "num_train_epochs" not in base:
                base["max_samples"] = 1600
            assert ObjectiveInfo("lora").idle_parameters(base | more) == {}
            assert OTHER[parameter] != defaults_of(LORA)[parameter]
            without, found = written(name, base), written(name, base | more)
            assert (found.text, found.lost) != (without.text, without.lost)
            check(name, found)


def test_what_changes_nothing_is_not_called_lost() -> None:
    neutral = {"label_smoothing_factor": 0.0, "loraplus_lr_ratio": 1.0, "use_dora": False, "device": "auto"}
    idle = {"momentum": 0.5, "lr_cycles": 3}
    for name in FRAMEWORKS:
        assert written(name, {"learning_rate": 1e-3, "max_steps": 10} | neutral | idle).lost == {}


def test_a_winner_of_ours_in_each() -> None:
    params = {
        "learning_rate": 5e-4, "batch_size": 8, "gradient_accumulation_steps": 2, "lora_r": 8, "alpha_over_r": 4.0,
        "lora_alpha": 32.0, "lr_scheduler": "cosine", "warmup_ratio": 0.1, "max_samples": 1800, "eval_every": 120,
    }  # fmt: skip
    trl, axolotl, factory = (written(name, params) for name in FRAMEWORKS)
    assert trl.values["max_steps"] == axolotl.values["max_steps"] == factory.values["max_steps"] == 113
    assert trl.values["eval_steps"] == 7 and trl.values["warmup_steps"] == 12
    assert (trl.values["lora_alpha"], trl.values["lora_target_modules"]) == (32, ["all-linear"])
    assert trl.values["use_peft"] is True and trl.to_fill == ("model_name_or_path", "datasets")
    assert (axolotl.values["adapter"], axolotl.values["lora_target_linear"]) == ("lora", True)
    assert (axolotl.values["micro_batch_size"], axolotl.values["bf16"]) == (8, "auto")
    assert (factory.values["lora_rank"], factory.values["lora_target"]) == (8, "all")
    assert factory.values["disable_gradient_checkpointing"] is True
    assert "bytes in the trial, tokens here" in trl.text
    peft = json.loads(written("peft", params).text)
    assert (peft["r"], peft["lora_alpha"], peft["target_modules"]) == (8, 32, "all-linear")


def test_a_trial_of_the_users_own_in_hugging_faces_names() -> None:
    params = {
        "training": {"learning_rate": 5e-5, "per_device_train_batch_size": 8, "batch_size": 16},
        "lora_rank": 16, "target_modules": ["q_proj", "v_proj"], "model_name_or_path": "org/model",
        "train_file": "d.jsonl", "warmup_ratio": 0.03, "num_train_epochs": 3, "load_in_4bit": True, "foo": 1,
    }  # fmt: skip
    for name in FRAMEWORKS:
        found = written(name, params, {"command": ["python", "x.py"]})
        check(name, found)
        assert found.lost == {
            "training.batch_size 16": "training.per_device_train_batch_size is used instead",
            "foo 1": "it has no counterpart",
        }
        assert 5e-5 in found.values.values() and "org/model" in found.values.values()
    assert written("axolotl", params, "a.py:train").values["adapter"] == "qlora"
    assert written("llamafactory", params, "a.py:train").values["lora_target"] == "q_proj,v_proj"
    [one] = written("trl", params | {"target_modules": ["q_proj"]}, "a.py:train").values[
        "lora_target_modules"
    ]
    assert re.fullmatch(one, "model.layers.0.self_attn.q_proj") and not re.fullmatch(one, "model.freq_proj")
    wsd = {"lr_scheduler_type": "warmup_stable_decay", "max_steps": 100}
    kwargs = {"lr_scheduler_kwargs": {"num_decay_steps": 20}}
    assert "lr_scheduler_kwargs" not in written("llamafactory", wsd, "a.py:train").values
    assert written("trl", wsd | kwargs, "a.py:train").values["lr_scheduler_kwargs"] == {"num_decay_steps": 20}
    assert written("llamafactory", wsd | kwargs, "a.py:train").values["lr_scheduler_kwargs"] == {
        "num_stable_steps": 80, "num_decay_steps": 20,
    }  # fmt: skip
    pattern = params | {"target_modules": r".*\.(q|v)_proj"}
    assert written("trl", pattern, "a.py:train").values["lora_target_modules"] == [r".*\.(q|v)_proj"]
    assert r"target_modules .*\.(q|v)_proj" in written("llamafactory", pattern, "a.py:train").lost
    fields = {"prompt_field": "question", "completion_field": "answer"}
    read = written("axolotl", params | fields, "a.py:train").values["datasets"][0]["type"]
    assert (read["field_instruction"], read["field_output"]) == ("question", "answer")
    classes = params | {"task": "sequence_classification", "revision": "main"}
    assert json.loads(written("peft", classes, "a.py:train").text)["task_type"] == "SEQ_CLS"
    assert "task sequence_classification" in written("trl", classes, "a.py:train").lost
    sgd = written("trl", {"learning_rate": 0.1, "optimizer": "sgd"}, "a.py:train")
    assert (sgd.values["optim"], "optim_args" in sgd.values) == ("sgd", False)
    plain = written("llamafactory", {"learning_rate": 1e-5, "num_train_epochs": 1}, "a.py:train")
    assert plain.values["finetuning_type"] == "full"


def test_the_same_training_is_asked_for_there() -> None:
    epochs = {"learning_rate": 1e-3, "num_train_epochs": 2}
    share = {name: written(name, epochs | {"warmup_steps": 0.1}, "a.py:train").values for name in FRAMEWORKS}
    assert share["trl"]["warmup_steps"] == 0.1, "a share in transformers 5"
    for name in ("axolotl", "llamafactory"):
        assert share[name]["warmup_ratio"] == 0.1 and "warmup_steps" not in share[name]
        both = written(name, epochs | {"warmup_steps": 0, "warmup_ratio": 0.1}, "a.py:train").values
        assert both["warmup_ratio"] == 0.1 and "warmup_steps" not in both, "Axolotl refuses both"
    counted = written("axolotl", {"learning_rate": 1e-3, "max_steps": 200, "warmup_ratio": 0.1}).values
    assert counted["warmup_steps"] == 20 and "warmup_ratio" not in counted, "of all steps, not of an epoch's"
    assert written("axolotl", {"learning_rate": 1e-3, "max_steps": 200}).values["warmup_ratio"] == 0.0
    for name in FRAMEWORKS:
        relative = written(name, {"learning_rate": 0.1, "max_steps": 9, "optimizer": "adafactor"})
        check(name, relative)
        assert "search another" in relative.lost["learning_rate 0.1"]
        coupled = written(
            name, {"learning_rate": 0.1, "max_steps": 9, "optimizer": "sgd", "weight_decay": 0.1}
        )
        assert "weight_decay: 0.1  # is applied through the momentum there" in coupled.text
        twice = written(name, epochs | {"precision": "bf16", "bf16": "full"}, "a.py:train")
        assert twice.lost == {"bf16 full": "True is used instead"}
    files = {"learning_rate": 1e-3, "max_steps": 9, "train_file": "a.txt", "validation_file": "b.txt"}
    assert "test_split_size" in written("trl", files).to_fill, "without one trl sft ends at eval_strategy"
    texts = {"learning_rate": 1e-3, "max_steps": 9, "model": "m", "train_file": "a.txt"}
    for name, key in zip(FRAMEWORKS, ("packing", "sample_packing", "packing"), strict=True):
        check(name, packed := written(name, texts, "hf_lora"))
        assert packed.values[key] is True, "hf_lora packs texts"
        assert key not in written(name, texts | {"train_file": "a.jsonl"}, "hf_lora").values
        assert key not in written(name, texts).values, "lora does not"
    assert written("trl", texts, "hf_lora").values["packing_strategy"] == "wrapped"
    odd = written("peft", {"lora_r": 8, "a\nb": 1}, "a.py:train")
    assert all(what.isprintable() for what in odd.lost)


@pytest.mark.parametrize(
    ("objective", "parameters", "told"),
    [
        ("xgboost", {"max_depth": 3}, "does not fine-tune a language model"),
        ("pretrain", {"learning_rate": 1e-3}, "does not fine-tune a language model"),
        ("a.py:train", {"x": 1.0}, r"none of the trial's parameters \(x\)"),
    ],
)
def test_what_is_no_fine_tuning_is_refused(objective: str, parameters: dict[str, Any], told: str) -> None:
    for name in (*FRAMEWORKS, "peft"):
        with pytest.raises(UsageError, match=told):
            written(name, parameters, objective)
    with pytest.raises(UsageError, match="no adapters"):
        written("peft", {"learning_rate": 1e-3}, "a.py:train")


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("optim.lr", 0.01, "learning_rate"),  # a group that is called like a key
        ("optim.weight_decay", 0.05, "weight_decay"),
        ("optimizer.lr", 0.01, "learning_rate"),
        ("packing.max_length", 64, "max_length"),
        ("a.optim.lr", 0.01, "learning_rate"),
        ("data.dataset_text_field", "text", "dataset_text_field"),
        ("data.text_field", "text", "dataset_text_field"),
        ("model.name_or_path", "gpt2", "model_name_or_path"),
        ("model.name", "gpt2", "model_name_or_path"),
        ("lora.alpha", 32, "lora_alpha"),
        ("lora.dropout", 0.1, "lora_dropout"),
        ("train.batch_size", 4, "per_device_train_batch_size"),
        ("eval.batch_size", 4, "per_device_eval_batch_size"),
        ("data.seed", 5, "seed"),
        ("lr_scheduler_kwargs.num_cycles", 2, "lr_scheduler_kwargs"),
    ],
)
def test_parameters_in_groups_have_their_keys(path: str, value: Any, key: str) -> None:
    found = written("trl", {"lora_r": 8, path: value}, "a.py:train")
    check("trl", found)
    assert found.lost == {}
    wanted = {"num_cycles": value} if key.endswith("kwargs") else value
    assert found.values[key] == wanted


@pytest.mark.parametrize("parameters", [{"seed": 42}, {"train.seed": 42}, {"random_seed": 42}])
@pytest.mark.parametrize(
    "objective", ["a.py:train", {"command": ["./t", "${args}"]}], ids=["function", "command"]
)
def test_a_seed_of_the_users_own_is_the_seed(parameters: dict[str, Any], objective: Any) -> None:
    for name in FRAMEWORKS:
        found = written(name, {"learning_rate": 1e-4} | parameters, objective)
        assert found.values["seed"] == 42 and found.lost == {}
        generated = written(name, {"learning_rate": 1e-4}, objective)
        assert generated.values["seed"] == 5
        assert ("HPSEARCH_SEED" in generated.text) is isinstance(objective, dict)


def test_what_stands_in_a_configuration_file_alone_is_exported(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "lora_target_modules: all-linear\nmodules_to_save: [lm_head]\nlr: 7\n"
        "train: {learning_rate: 1e-4, logging_steps: 5, lr_scheduler_kwargs: {a: 1, b: 2}}\nodd: !mine {x: 1}\n"
    )
    command = [
        "./t",
        f"--config=${{config:{tmp_path / 't.yaml'}}}",
        "--lora-alpha",
        "24",
        "--use_dora",
        "${args}",
    ]
    own = {"train.learning_rate": 3e-4, "lora_r": 8, "train.lr_scheduler_kwargs.b": 3}
    for name in FRAMEWORKS:
        check(name, found := written(name, own, {"command": command}))
        assert found.lost == {
            "lr 7": "train.learning_rate is used instead",
            "odd.x 1": "it has no counterpart",
        }
        values = found.values
        assert (values["learning_rate"], values["logging_steps"], values["lora_alpha"]) == (3e-4, 5, 24)
        assert values["lr_scheduler_kwargs"] == {"a": 1, "b": 3}
        assert True in (values.get("use_dora"), values.get("peft_use_dora"))
    assert written("trl", own, {"command": command}).values["lora_target_modules"] == ["all-linear"]
    assert written("axolotl", own, {"command": command}).values["lora_target_linear"] is True
    factory = written("llamafactory", own, {"command": command}).values
    assert (factory["lora_target"], factory["additional_target"]) == ("all", "lm_head")
    peft = json.loads(written("peft", own, {"command": command}).text)
    assert (peft["target_modules"], peft["modules_to_save"], peft["r"]) == ("all-linear", ["lm_head"], 8)
    gone = written("trl", own, {"command": ["./t", "${config:gone.yaml}"]})
    assert "cannot be read" in gone.lost["gone.yaml"]


def test_a_trials_copy_of_its_file_counts_and_not_the_present_file(tmp_path: Path) -> None:
    source, kept = tmp_path / "t.yaml", tmp_path / "0"
    kept.mkdir()
    source.write_text("learning_rate: 1e-4\nlora_r: 64\n")
    (kept / "trial.yaml").write_text("learning_rate: 3e-4\nlora_r: 4\n")
    content = {
        "objective": {"command": ["./t", f"${{config:{source}}}"]}, "metric": "loss", "seed": 5,
        "parameters": {"learning_rate": 3e-4}, "provenance": {"study": "s", "trial": 0},
    }  # fmt: skip
    for name, key in (("trl", "lora_r"), ("axolotl", "lora_r"), ("llamafactory", "lora_rank"), ("peft", "r")):
        assert for_framework(name, content, None, kept).values[key] == 4
        assert for_framework(name, content, None).values[key] == 64


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_a_framework_calls_the_same_is_not_lost(name: str) -> None:
    keys = set(PUBLISHED[name]["keys"])
    for same in (*SAME_NAMES, *TRAINING, *OF_TRL):
        if same in keys and same not in SPECIAL:
            assert not written(name, {"lora_r": 8, same: 3}, "a.py:train").lost, same
    assert set(OF_ALL) <= keys
    assert name == "axolotl" or set(SAME_NAMES) <= keys
    assert name != "trl" or set(OF_TRL) <= keys
    kept = {"load_best_model_at_end": True, "eval_steps": 10, "save_steps": 20, "eval_strategy": "steps"}
    found = written(name, {"lora_r": 8} | kept, "a.py:train")
    check(name, found)
    assert found.values["save_steps"] == 20


@pytest.mark.parametrize(
    ("rows", "learned"),
    [
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
            "answers",
        ),
        ('{"prompt": "a", "completion": "b"}', "all"),
        (None, "unknown"),
    ],
)
def test_the_last_answer_of_messages_is_what_is_learned(
    tmp_path: Path, rows: str | None, learned: str
) -> None:
    file = tmp_path / "rows.jsonl"
    if rows is not None:
        file.write_text(rows + "\n")
    params = {"learning_rate": 1e-3, "max_steps": 9, "model": "m", "train_file": str(file)}
    found = {name: written(name, params, "hf_lora") for name in FRAMEWORKS}
    for name, each in found.items():
        check(name, each)
        assert (f"the learned part of {file}" in each.lost) is (learned == "unknown")
    messages = learned == "answers"
    assert found["trl"].values.get("assistant_only_loss") is (True if messages else None)
    assert found["llamafactory"].values.get("mask_history") is (True if messages else None)
    [records] = found["axolotl"].values.get("datasets", [{}])
    assert records.get("roles_to_train") == (["assistant"] if messages else None)
    for name in ("trl", "axolotl"):
        assert ("messages the last answer" in found[name].lost) is messages
    assert "messages the last answer" not in found["llamafactory"].lost


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(max_examples=50)
@given(
    st.dictionaries(st.sampled_from([*OTHER, "model", "optim", "lr_scheduler_type", "load_in_4bit"]), VALUES)
)
def test_any_value_of_a_user_is_written_or_reported_as_lost(parameters: dict[str, Any]) -> None:
    for name in FRAMEWORKS:
        try:
            found = written(name, parameters, "a.py:train")
        except UsageError:
            continue
        assert yaml.safe_load(found.text) == found.values


@given(VALUES | st.sampled_from([".5", ".1_0", ".inf", ".NaN", "no", "..", "./a"]))
def test_any_value_is_read_as_it_is(value: Any) -> None:
    assert yaml.safe_load(f"key: {text_of(value)}  # a remark\n") == {"key": value}


@pytest.mark.slow
def test_the_command_writes_tells_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def train(trial): return 1.0\n")
    parameters = {"learning_rate": {"value": 1e-4}, "lora_r": [8], "foo": 3}
    space = {
        "version": 1,
        "name": "tuned",
        "objective": "mine.py:train",
        "metric": "loss",
        "parameters": parameters,
    }
    Path("tuned.yaml").write_text(json.dumps(space | {"budget": {"trials": 1}, "execution": {"workers": 1}}))
    run("tuned.yaml", storage="hpsearch.db")

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", "export", "tuned", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    code, out, told = call("--format", "axolotl", "-o", "a.yaml")
    assert (code, out) == (0, "") and "wrote a.yaml: trial 0 of tuned" in told
    assert "not in it: foo 3: it has no counterpart" in told and "to fill in: base_model, datasets" in told
    assert "# axolotl train a.yaml\n" in Path("a.yaml").read_text()
    code, out, told = call("--format", "peft")
    assert code == 0 and json.loads(out)["r"] == 8 and "learning_rate" in told
    assert call("--format", "axolotl", "-o", "a.yaml")[0] == 2
    assert call("--format", "unsloth")[0] == 2


# With the libraries themselves.


@pytest.mark.extras("transformers")
@pytest.mark.parametrize("lr_scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    "more", [{}, {"warmup_ratio": 0.1}, {"min_lr_ratio": 0.2, "warmup_ratio": 0.1}], ids=str
)
def test_a_schedule_is_the_same_curve_there(lr_scheduler: str, more: dict[str, Any]) -> None:
    import torch
    import transformers

    steps = 400
    config = LORA(lr_scheduler=lr_scheduler, learning_rate=0.01, max_steps=steps, lr_decay_ratio=0.3, **more)
    options = {name: getattr(config, name) for name in (*SCHEDULE_OPTIONS, "learning_rate")}
    found = hf_schedule(lr_scheduler, options, steps)
    if found.name in (None, "one_cycle", "reduce_lr_on_plateau"):
        assert lr_scheduler in ("step", "one_cycle", "reduce_on_plateau")
        return
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=config.learning_rate)
    schedule = transformers.get_scheduler(
        found.name, optimizer, math.ceil(config.warmup_ratio * steps), steps, found.kwargs
    )
    floor = config.min_lr_ratio if "min_lr_ratio" in found.lost else 0.0
    for step in range(steps):
        theirs = schedule.get_last_lr()[0] / config.learning_rate
        ours = lr_factor(config, step / steps)
        if ours > floor and not (
            step < 40 and lr_scheduler == "warmup_stable_decay"
        ):  # it rises from the floor
            assert theirs == pytest.approx(ours, abs=0.01 + floor), step
        optimizer.step()
        schedule.step()


@pytest.mark.extras("peft", "trl")
@pytest.mark.parametrize("lr_scheduler", SCHEDULERS)
@pytest.mark.filterwarnings("default")
def test_trl_and_peft_read_it(tmp_path: Path, lr_scheduler: str) -> None:
    import peft
    import trl

    params = {
        "learning_rate": 5e-5, "lora_r": 8, "lora_alpha": 24.0, "lr_scheduler": lr_scheduler, "max_samples": 800,
        "batch_size": 4, "train_file": "mine.jsonl", "precision": "fp32", "use_rslora": True, "eval_every": 80,
        "load_best_model_at_end": True, "optimizer": "sgd", "warmup_ratio": 0.1,
    }  # fmt: skip
    (tmp_path / "best.yaml").write_text(written("trl", params).text)
    kinds = (trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig, trl.DatasetMixtureConfig)
    arguments = ["--config", str(tmp_path / "best.yaml")]
    _, training, model, data = trl.TrlParser(kinds).parse_args_and_config(arguments)  # refuses unknown keys
    assert (training.learning_rate, training.max_steps, training.eval_steps) == (5e-5, 200, 20)
    assert (training.bf16, training.fp16, training.seed) == (False, False, 5)
    assert data.datasets[0].data_files == "mine.jsonl"
    adapters = trl.get_peft_config(model)
    assert (adapters.r, adapters.lora_alpha, adapters.use_rslora) == (8, 24, True)
    (tmp_path / "adapter_config.json").write_text(written("peft", params).text)
    loaded = peft.LoraConfig.from_pretrained(str(tmp_path))
    for name in ("r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "use_dora", "task_type"):
        assert getattr(loaded, name) == getattr(adapters, name), name
