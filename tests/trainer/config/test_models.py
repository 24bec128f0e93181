from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.rules import known_parameters, rules
from hpsearch.trainer.config.training import SCHEDULERS
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.optim.schedule import report_due


def problems(params: dict[str, Any], kind: type[TrainConfig] = LoraConfig) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        kind.from_params(params)
    return caught.value.problems


def test_every_problem_is_listed_at_once() -> None:
    found = problems(
        {"max_samples": 64, "learning_rate": "1e-3", "lora_r": 0, "warmup_rato": 0.1, "lr_scheduler": "cos"}
    )
    assert found == [
        "warmup_rato: unknown to the objective 'lora', did you mean \"warmup_ratio\"?",
        "learning_rate: found '1e-3' (str), needs a number in (0, 1e30]",
        f"lr_scheduler: found 'cos', allowed: {', '.join(SCHEDULERS)}, did you mean \"cosine\"?",
        "lora_r: found 0, needs a whole number in [1, 65536]",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", True),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("learning_rate", 0),
        ("learning_rate", None),
        ("batch_size", 8.0),
        ("batch_size", True),
        ("lora_dropout", 0.99999999),  # 1 in 32 bits
        ("adam_epsilon", 1e-50),  # 0 in 32 bits
        ("warmup_ratio", -0.1),
        ("validation_split", 0.6),
        ("train_file", 3),
        ("target_modules", []),
        ("target_modules", ["qkv", "head"]),
        ("target_modules", "q_proj"),
        ("device", "gpu"),
        ("optimizer", "adam"),
        ("momentum", 1.0),
        ("nesterov", 1),
        ("label_smoothing_factor", 1.0),
        ("precision", "float16"),
        ("deterministic", "yes"),
        ("gradient_checkpointing", 0),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(name: str, value: Any) -> None:
    found = problems({"max_samples": 64, name: value})
    assert len(found) == 1
    assert found[0].startswith(f"{name}: found ")


@pytest.mark.parametrize("value", [2**62, 10**400])
@pytest.mark.parametrize("name", ["batch_size", "gradient_accumulation_steps", "max_length", "lora_r"])
def test_a_size_that_no_run_can_have_is_refused(name: str, value: int) -> None:
    assert problems({"max_steps": 9, name: value})[0].startswith(f"{name}: found {value}, needs a whole ")


@pytest.mark.parametrize("value", [10**8, 10**400])
@pytest.mark.parametrize("name", ["width", "depth", "heads"])
def test_a_model_of_an_absurd_size_is_refused_at_once(name: str, value: int) -> None:
    assert problems({"max_steps": 9, name: value}, PretrainConfig)[0].startswith(f"{name}: found {value}, ")


@pytest.mark.parametrize("name", ["learning_rate", "lora_alpha", "alpha_over_r", "loraplus_lr_ratio"])
def test_a_factor_that_no_number_of_32_bits_holds_is_refused(name: str) -> None:
    assert problems({"max_steps": 9, name: 1e300})[0].startswith(f"{name}: found 1e+300, needs a number ")


@pytest.mark.parametrize("name", ["max_samples", "lr_timescale"])
def test_a_number_beyond_all_real_ones_is_refused(name: str) -> None:
    assert problems({name: 10**400})[0].startswith(f"{name}: found 1000")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {},
            "max_samples, max_steps, num_train_epochs: found none of them, needs exactly one: the run's length",
        ),
        (
            {"max_samples": 9, "max_steps": 9},
            "max_samples, max_steps, num_train_epochs: found max_samples and max_steps, needs exactly one: the run's length",
        ),
        (
            {"max_samples": 8, "batch_size": 4, "gradient_accumulation_steps": 4},
            "max_samples: found 8, but one step takes 16 samples",
        ),
        (
            {"max_steps": 9, "warmup_ratio": 0.1, "warmup_steps": 3},
            "warmup_ratio, warmup_steps: found both, needs at most one",
        ),
        (
            {"max_steps": 9, "train_file": "english", "validation_file": "mine.txt"},
            "validation_file: train_file 'english' brings its own",
        ),
        (
            {"max_steps": 9, "train_file": "english", "text_field": "body"},
            "text_field: train_file 'english' has no records",
        ),
        (
            {"max_steps": 9, "validation_split": 0.0},
            "validation_split: found 0, needs a share above it, or a validation_file",
        ),
        (
            {"max_steps": 9, "optimizer": "sgd", "nesterov": True, "momentum": 0},
            "nesterov: found true, but momentum is 0; raise it",
        ),
        (
            {"max_steps": 9, "lora_r": 8, "lora_alpha": 8, "alpha_over_r": 2},
            "lora_alpha: found 8, but alpha_over_r 2 * lora_r 8 is 16",
        ),
    ],
)
def test_contradictions_are_refused(params: dict[str, Any], message: str) -> None:
    assert problems(params) == [message]


def test_pretrain_checks_its_own() -> None:
    assert problems({"max_steps": 9, "dropout": 0.99999999}, PretrainConfig) == [
        "dropout: found 0.99999999, needs a number in [0, 0.999)"
    ]
    assert problems({"max_steps": 9, "width": 30}, PretrainConfig) == [
        "width: found 30, needs a multiple of heads (4)"
    ]
    assert problems({"max_steps": 9, "lora_r": 8}, PretrainConfig)[0].startswith(
        "lora_r: unknown to the objective"
    )


def test_a_configuration_made_by_hand_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="batch_size: found 0"):
        LoraConfig(max_steps=1, batch_size=0)


def test_ints_are_accepted_for_floats_and_defaults_complete_the_rest() -> None:
    config = LoraConfig.from_params({"max_steps": 10, "learning_rate": 1, "target_modules": ["down", "qkv"]})
    assert config.learning_rate == 1.0 and isinstance(config.learning_rate, float)
    assert config.targets == ("qkv", "down")
    assert config.lora_r == 8 and config.scale == 2.0 and config.lr_scheduler == "linear"


@pytest.mark.parametrize(
    "given",
    [{"lora_alpha": 32}, {"alpha_over_r": 4}, {"lora_alpha": 32.0, "alpha_over_r": 4}],
)
def test_alpha_is_given_by_itself_or_by_its_ratio_or_both_ways(given: dict[str, Any]) -> None:
    assert LoraConfig.from_params({"max_steps": 1, "lora_r": 8} | given).scale == 4.0


@given(samples=st.integers(1, 500), batch=st.integers(1, 16), parts=st.integers(1, 4))
def test_the_last_step_is_the_first_that_reaches_the_length(samples: int, batch: int, parts: int) -> None:
    if batch * parts > samples:
        return
    config = LoraConfig(max_samples=samples, batch_size=batch, gradient_accumulation_steps=parts)
    assert (config.total_steps - 1) * batch * parts < samples <= config.total_steps * batch * parts


def test_the_unit_is_that_of_the_length() -> None:
    assert (LoraConfig(max_steps=30).unit, LoraConfig(max_steps=30).length) == ("steps", 30)
    assert (LoraConfig(max_samples=30).unit, LoraConfig(max_samples=30).length) == ("samples", 30)


@pytest.mark.parametrize(
    ("length", "interval", "validations"),
    [
        ({"max_steps": 25}, 2, 13),
        ({"max_steps": 11}, 1, 11),
        ({"max_steps": 100}, 10, 10),
        ({"num_train_epochs": 3, "samples_per_epoch": 16}, 1, 3),
    ],
)
def test_validations_come_at_a_tenth_of_the_run_rounded_down(
    length: dict[str, int], interval: int, validations: int
) -> None:
    config = LoraConfig.from_params(length)
    assert config.eval_interval == interval
    due = [report_due(config, step) for step in range(config.total_steps + 1)]
    assert sum(place is not None for place in due) == validations
    assert "a tenth of the length, rounded down, at least 1" in rules(LoraConfig)["eval_every"].help


def test_every_parameter_has_help_and_a_default_that_its_own_rule_accepts() -> None:
    for kind in (LoraConfig, PretrainConfig):
        config = kind(max_steps=1)
        for name, rule in rules(kind).items():
            assert rule.help
            assert rule.problem(getattr(config, name)) is None, name
    assert known_parameters(LoraConfig) >= {
        "learning_rate",
        "lora_r",
        "lora_alpha",
        "lora_dropout",
        "alpha_over_r",
    }


def test_the_error_reaches_another_process_whole() -> None:
    error = pickle.loads(pickle.dumps(ConfigError(["a: wrong", "b: wrong"])))
    assert error.problems == ["a: wrong", "b: wrong"] and str(error) == "a: wrong\nb: wrong"


def test_the_configuration_needs_no_torch() -> None:
    check = "import sys, hpsearch.trainer.config.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
