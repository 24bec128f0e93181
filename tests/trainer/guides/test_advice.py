"""Each piece of advice where it fits, and nowhere else."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.rules import known_parameters
from hpsearch.trainer.guides import advice
from hpsearch.trainer.guides.advice import advise
from hpsearch.trainer.guides.evidence import EndedRun, RunEnd


class Report(NamedTuple):
    step: int
    value: float
    metrics: dict[str, float]


def course(*values: float, every: int = 100, **metrics: list[float]) -> list[Report]:
    """Reports of these values, with a list of each metric beside them."""
    return [
        Report((i + 1) * every, value, {name: listed[i] for name, listed in metrics.items()})
        for i, value in enumerate(values)
    ]


LORA: dict[str, Any] = {"max_samples": 1800}
NAN = math.nan
GREW = course(1.5, 2.0, NAN, grad_norm=[1.2, 4800.0, NAN])
LATE = course(1.5, 1.4, NAN, every=600)
BETTER: tuple[int, dict[str, Any]] = (12, {"learning_rate": 3e-3})

DIVERGED: list[tuple[dict[str, Any], list[Report], Any, list[str]]] = [
    # what the parameters are, beside the objective's defaults; the reports; the best; what is advised
    (
        {"learning_rate": 0.03, "max_grad_norm": 0.0},
        GREW,
        None,
        [
            "the gradient's norm grew from 1.2 to 4,800: set max_grad_norm to 1 (it is 0, which is no limit)",
            "lower learning_rate from 0.03 to 0.003",
            "set warmup_ratio to 0.1 (it is 0, so the first step is at the full rate)",
        ],
    ),
    (
        {"learning_rate": 0.03, "max_grad_norm": 100.0, "warmup_ratio": 0.05},
        GREW,
        BETTER,
        [
            "the gradient's norm grew from 1.2 to 4,800: lower max_grad_norm from 100 to 1",
            "learning_rate 0.03 is 10 times that of the best trial (0.003 in trial 12): lower it",
            "raise warmup_ratio from 0.05 to 0.1",
        ],
    ),
    (
        {"learning_rate": 1e30, "warmup_ratio": 0.1},
        course(NAN),
        BETTER,
        ["learning_rate 1e+30 is 3.3e+32 times that of the best trial (0.003 in trial 12): lower it"],
    ),
    # Clipped, warmed up, and no faster than the best: nothing is left to say.
    ({"learning_rate": 3e-3, "warmup_ratio": 0.1}, GREW, BETTER, []),
    ({"learning_rate": 3e-3, "warmup_steps": 5}, [], BETTER, []),
    ({"learning_rate": 3e-3, "lr_scheduler": "one_cycle"}, [], BETTER, []),  # which begins low
    (
        {"learning_rate": 3e-3, "warmup_ratio": 0.1, "max_grad_norm": 0.0},
        course(NAN, grad_norm=[NAN]),
        BETTER,
        ["set max_grad_norm to 1 (it is 0, which is no limit)"],
    ),
    # Late, a warm-up is long over; a schedule would have lowered the rate.
    ({"learning_rate": 3e-3}, LATE, BETTER, []),
    (
        {"learning_rate": 3e-3, "lr_scheduler": "constant"},
        LATE,
        BETTER,
        [
            "set lr_scheduler to linear or cosine: at 1,800 of 1,800 samples they have already lowered the rate"
        ],
    ),
    ({"learning_rate": 3e-3, "lr_scheduler": "constant", "warmup_ratio": 0.1}, GREW, BETTER, []),
    (
        {"learning_rate": 3e-3, "warmup_ratio": 0.1, "lora_alpha": 128.0, "lora_r": 8},
        [],
        BETTER,
        ["lora_alpha 128 is 16 times lora_r 8: 2 to 4 times is usual"],
    ),
    (
        {"learning_rate": 3e-3, "warmup_ratio": 0.1, "alpha_over_r": 16, "lora_alpha": 128.0},
        [],
        BETTER,
        ["lower alpha_over_r from 16: 2 to 4 is usual"],
    ),
    ({"learning_rate": 3e-3, "warmup_ratio": 0.1, "alpha_over_r": 4}, [], BETTER, []),
    (
        {"learning_rate": 0.9, "warmup_ratio": 0.1, "lora_alpha": 800.0, "lora_r": 8},
        [],
        BETTER,
        [
            "learning_rate 0.9 is 300 times that of the best trial (0.003 in trial 12): lower it",
            "lora_alpha 800 is 100 times lora_r 8: 2 to 4 times is usual",
        ],
    ),
]


@pytest.mark.parametrize(("params", "reports", "best", "advised"), DIVERGED)
def test_a_diverged_run(params: dict[str, Any], reports: list[Report], best: Any, advised: list[str]) -> None:
    assert advise(LoraConfig, EndedRun(LORA | params, "diverged", reports, best=best)) == advised


def test_an_infinite_norm_is_reported() -> None:
    reports = course(1.5, NAN, grad_norm=[1.0, math.inf])
    first, *_ = advise(LoraConfig, EndedRun(LORA | {"max_grad_norm": 0.0}, "diverged", reports))
    assert first.startswith("the gradient's norm grew from 1 to infinity: ")


TWICE = "set gradient_checkpointing to true: activations are recomputed, a fifth to a third slower"
HALF = "set precision to bf16, if the device has it: activations of half the size"

MEMORY: list[tuple[type[TrainConfig] | None, dict[str, Any], list[str]]] = [
    (LoraConfig, {"batch_size": 16}, [TWICE, HALF]),  # whose passes are small, whatever the batch
    (
        LoraConfig,
        {"lora_r": 512, "gradient_checkpointing": True, "precision": "bf16"},
        ["lower lora_r from 512 to 256: half the adapters"],
    ),
    (LoraConfig, {"lora_r": 64}, [TWICE, HALF]),
    (
        LoraConfig,
        {"max_length": 2048, "precision": "bf16"},
        [TWICE, "lower max_length from 2048 to 1024, if the text allows it"],
    ),
    # On CUDA a pass takes 4,096 tokens, and what `auto` means has half the size already.
    (
        LoraConfig,
        {"batch_size": 32, "max_length": 128, "device": "cuda"},
        [
            "halve batch_size from 32 to 16: half the activations",
            TWICE,
            "lower max_length from 128 to 64, if the text allows it",
        ],
    ),
    (
        LoraConfig,
        {"batch_size": 64, "max_length": 1024, "device": "cuda", "precision": "fp32"},
        [TWICE, HALF],
    ),
    (
        LoraConfig,
        {"batch_size": 2, "max_length": 8192, "device": "cuda"},
        [TWICE, "lower max_length from 8192 to 4096, if the text allows it"],
    ),
    (
        LoraConfig,
        {"batch_size": 16, "finetuning_type": "full"},
        [
            "halve batch_size from 16 to 8 and raise gradient_accumulation_steps from 1 to 2: "
            "the same step with half the activations",
            TWICE,
            HALF,
            "lower max_length from 128 to 64, if the text allows it",
        ],
    ),
    (
        PretrainConfig,
        {"batch_size": 5, "max_length": 31, "depth": 1, "gradient_checkpointing": True},
        [
            "halve batch_size from 5 to 2 and raise gradient_accumulation_steps from 1 to 3: "
            "about the same step with half the activations",
            HALF,
        ],
    ),
    (
        PretrainConfig,
        {"batch_size": 1, "max_length": 16, "depth": 12},
        [TWICE, HALF, "halve depth from 12 to 6: a smaller model"],
    ),
    # An objective of the user's: what the names of its parameters tell.
    (None, {"batch_size": 4}, ["halve batch_size from 4 to 2: half the activations"]),
    (None, {"x": 1.0}, []),
    (
        None,
        {"per_device_train_batch_size": 1, "gradient_checkpointing": False, "bf16": False, "fp16": False},
        [
            "set gradient_checkpointing to true: activations are recomputed, a fifth to a third slower",
            "set bf16 to true: numbers of half the size",
        ],
    ),
    (None, {"gradient_checkpointing": True, "bf16": False, "fp16": True}, []),
]


@pytest.mark.parametrize(("config", "params", "advised"), MEMORY)
def test_a_run_out_of_memory(
    config: type[TrainConfig] | None, params: dict[str, Any], advised: list[str]
) -> None:
    assert advise(config, EndedRun(params, "out_of_memory")) == advised


OVERFITTED = course(1.6, 1.31, 1.36, 1.40, every=600, train_loss=[1.6, 1.3, 1.1, 1.0])
SEEN = "val_loss rose from 1.31 at 1,200 to 1.4 at 2,400 samples while train_loss fell from 1.3 to 1"
UP = course(1.7, 3.6, 3.5, every=800, train_loss=[1.7, 3.6, 3.5], grad_norm=[0.5, 60.0, 0.1])
GONE_UP = "val_loss rose from 1.7 at 800 to 3.5 at 2,400 samples and train_loss from 1.7 to 3.5"
ALREADY = {"early_stopping_patience": 3, "lora_dropout": 0.1, "weight_decay": 0.1}

COMPLETE: list[tuple[dict[str, Any], list[Report], list[str]]] = [
    (
        {"lora_r": 32},
        OVERFITTED,
        [
            f"{SEEN}: lower max_samples from 2400 to 1200",
            "set early_stopping_patience to 3 (it is 0): the run ends after 3 worse validations",
            "raise lora_dropout from 0 to 0.05",
            "raise weight_decay from 0.01 to 0.1",
        ],
    ),
    (
        {"early_stopping_patience": 3, "lora_dropout": 0.05, "weight_decay": 0.0, "lora_r": 12},
        OVERFITTED,
        [
            f"{SEEN}: raise lora_dropout from 0.05 to 0.1",
            "raise weight_decay from 0 to 0.01",
            "lower lora_r from 12 to 8",
        ],
    ),
    (ALREADY | {"lora_r": 32}, OVERFITTED, [f"{SEEN}: lower lora_r from 32 to 16"]),
    (ALREADY, OVERFITTED, []),
    # No worse than noise; worse only once; a training loss that rose too; a training loss that nobody told.
    ({}, course(1.6, 1.31, 1.315, 1.32, every=600, train_loss=[1.6, 1.3, 1.2, 1.1]), []),
    ({}, course(1.6, 1.4, 1.31, 1.40, every=600, train_loss=[1.6, 1.4, 1.3, 1.1]), []),
    ({}, course(1.6, 1.31, 1.36, 1.40, every=600, train_loss=[1.6, 1.3, 1.2, 1.35]), []),
    ({}, course(1.6, 1.31, 1.36, 1.40, every=600), []),
    # Gone up, and the training loss with it: what helps against a loss that is no number.
    (
        {"learning_rate": 0.03, "max_grad_norm": 0.0},
        UP,
        [
            f"{GONE_UP}: the gradient's norm grew from 0.5 to 60: set max_grad_norm to 1 (it is 0, which is no limit)",
            "lower learning_rate from 0.03 to 0.003",
            "set warmup_ratio to 0.1 (it is 0, so the first step is at the full rate)",
        ],
    ),
    (
        {"learning_rate": 0.03, "lr_scheduler": "constant"},
        course(1.9, 1.8, 1.7, 3.6, 3.5, every=480, train_loss=[1.9, 1.8, 1.7, 3.6, 3.6]),
        [
            "val_loss rose from 1.7 at 1,440 to 3.5 at 2,400 samples and train_loss from 1.7 to 3.6: "
            "lower learning_rate from 0.03 to 0.003",
            "set lr_scheduler to linear or cosine: at 1,440 of 2,400 samples they have already lowered the rate",
        ],
    ),
    (
        {"warmup_ratio": 0.1},
        course(1.7, 1.72, 1.75, 1.8, train_loss=[1.7, 1.8, 1.8, 1.9]),
        [],
    ),  # not far enough
    ({}, course(1.7, 3.6, 3.5, every=800), []),  # nobody told how it trained
    # Hardly learned.
    (
        {"learning_rate": 1e-4, "lora_r": 2},
        course(1.57, 1.567, 1.565, every=800),
        [
            "val_loss fell only from 1.57 at 800 to 1.565 at 2,400 samples: "
            "raise learning_rate from 0.0001 to 0.001",
            "raise lora_r from 2 to 8",
        ],
    ),
    ({}, course(1.57, 1.58, 1.565, every=800), []),  # to and fro: that is no low rate
    # Still learning.
    (
        {},
        course(1.6, 1.5, 1.45, 1.35, every=600),
        [
            "val_loss still fell from 1.45 at 1,800 to 1.35 at 2,400 samples: raise max_samples from 2400 to 4800"
        ],
    ),
    ({}, course(1.6, 1.4, 1.35, 1.34, every=600), []),  # it had come to its end
]


@pytest.mark.parametrize(("params", "reports", "advised"), COMPLETE)
def test_a_complete_run(params: dict[str, Any], reports: list[Report], advised: list[str]) -> None:
    assert advise(LoraConfig, EndedRun({"max_samples": 2400} | params, "complete", reports)) == advised


@pytest.mark.parametrize("kind", ["full", "linear"])
@pytest.mark.parametrize(
    ("ended", "reports"),
    [
        ("diverged", GREW),
        ("out_of_memory", []),
        ("complete", OVERFITTED),
        ("complete", course(1.57, 1.567, 1.565, every=800)),
    ],
)
@pytest.mark.parametrize(
    "adapters", [{"lora_r": 2, "lora_alpha": 128.0}, {"lora_r": 128, "alpha_over_r": 16.0}]
)
def test_no_advice_on_adapters_if_none_train(
    kind: str, ended: RunEnd, reports: list[Report], adapters: dict[str, Any]
) -> None:
    # All that comes before the adapters is as it is advised already: only they are left to speak of.
    params = {"weight_decay": 0.1, "early_stopping_patience": 3, "warmup_ratio": 0.1, "finetuning_type": kind}
    advised = advise(LoraConfig, EndedRun(LORA | params | adapters, ended, reports, best=BETTER))
    assert not [sentence for sentence in advised if "lora" in sentence or "alpha" in sentence]


def test_a_low_rate_is_compared_with_the_best() -> None:
    params, reports = {"learning_rate": 1e-4, "max_samples": 300}, course(1.57, 1.567, 1.565)
    (first,) = advise(LoraConfig, EndedRun(params, "complete", reports, best=BETTER))
    assert first.endswith(": raise learning_rate from 0.0001; the best trial (12) has 0.003")
    assert (
        advise(LoraConfig, EndedRun(params | {"learning_rate": 3e-3}, "complete", reports, best=BETTER)) == []
    )


def test_a_metric_that_rises_is_read_the_other_way_round() -> None:
    reports = course(0.6, 0.9, 0.85, 0.8, train_loss=[1.0, 0.9, 0.7, 0.5])
    seen = EndedRun({"max_steps": 400}, "complete", reports, metric="accuracy", unit="steps", maximize=True)
    assert advise(None, seen) == [
        "accuracy fell from 0.9 at 200 to 0.8 at 400 steps while train_loss fell from 0.9 to 0.5: "
        "lower max_steps from 400 to 200"
    ]
    better = EndedRun(
        {"max_steps": 300}, "complete", course(0.9, 0.6, 0.5, train_loss=[1.0, 0.9, 0.5]), unit="steps"
    )
    assert advise(None, better) == []


def test_a_length_in_another_unit_is_left_alone() -> None:
    (first, *_) = advise(None, EndedRun({"epochs": 3, "dropout": 0.0}, "complete", OVERFITTED))
    assert first.endswith(": raise dropout from 0 to 0.05")


NUMBERS = st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3))
NAMES = sorted(
    {*known_parameters(LoraConfig), *known_parameters(PretrainConfig)}
    | {name for kind in vars(advice).values() if isinstance(kind, tuple) for name in kind}
    | {"gradient_checkpointing", "bf16", "fp16"}
)
REPORTS = st.lists(
    st.builds(
        Report,
        st.integers(1, 10**6),
        st.floats(),
        st.dictionaries(st.sampled_from(["train_loss", "grad_norm"]), st.floats()),
    ),
    max_size=6,
)


@settings(max_examples=200)
@given(
    config=st.sampled_from([None, LoraConfig, PretrainConfig]),
    params=st.dictionaries(st.sampled_from(NAMES), NUMBERS),
    ended=st.sampled_from(["diverged", "out_of_memory", "complete"]),
    reports=REPORTS,
    unit=st.sampled_from(["samples", "steps", "epochs"]),
    maximize=st.booleans(),
    best=st.none() | st.tuples(st.integers(0), st.dictionaries(st.sampled_from(NAMES), NUMBERS)),
)
def test_advice_is_short_and_names_only_what_the_run_has(
    config: type[TrainConfig] | None,
    params: dict[str, Any],
    ended: str,
    reports: list[Report],
    unit: str,
    maximize: bool,
    best: Any,
) -> None:
    known = known_parameters(config) if config else frozenset(params)
    of_it = {name: value for name, value in params.items() if name in known}
    seen = EndedRun(of_it, cast(RunEnd, ended), reports, unit=unit, maximize=maximize, best=best)
    advised = advise(config, seen)
    assert len(advised) <= advice.MAX_SENTENCES
    assert all(sentence and "\n" not in sentence for sentence in advised)
    words = {word for sentence in advised for word in re.findall(r"\w+", sentence)}
    also = {unit} | ({"bf16"} if "precision" in known else set())  # what a report counts, and a precision
    assert words & {*NAMES} - also <= known


FLAT = course(1.5, 1.499, 1.498, 1.497)
WORSENED = course(1.3, 1.4, 1.5, train_loss=[1.0, 0.5, 0.3])


@pytest.mark.parametrize(
    ("rate", "best", "span", "told"),
    [
        (0.0049, 0.0049, (1e-4, 0.1), []),  # higher ones were worse
        (0.001, 0.0049, (1e-4, 0.1), ["raise learning_rate from 0.001; the best trial (12) has 0.0049"]),
        (0.0494, 0.0049, (1e-4, 0.1), []),
        (0.1, 0.1, (1e-4, 0.1), ["raise learning_rate from 0.1 to 1"]),  # where the search has not been
        (0.05, None, (1e-4, 0.1), ["raise learning_rate from 0.05 to 0.1"]),
        (0.0049, 0.0049, None, []),  # a list, or derived from what is searched
        (0.0049, None, None, ["raise learning_rate from 0.0049 to 0.049"]),
    ],
)
def test_advice_says_nothing_that_the_search_has_answered(
    rate: float, best: float | None, span: tuple[float, float] | None, told: list[str]
) -> None:
    seen = EndedRun(
        {"learning_rate": rate},
        "complete",
        FLAT,
        best=None if best is None else (12, {"learning_rate": best}),
        searched={"learning_rate": span},
    )
    found = advise(None, seen)
    assert [each.partition("samples: ")[2] for each in found] == told


@pytest.mark.parametrize(
    ("reports", "values", "spans"),
    [
        (FLAT, {"lora_r": 4}, {"lora_r": (2, 32)}),
        (
            WORSENED,
            {"lora_dropout": 0.0, "weight_decay": 0.0, "lora_r": 16, "depth": 4, "max_samples": 400},
            {"lora_dropout": (0, 0.2), "weight_decay": (0, 0.1), "lora_r": (2, 32), "depth": (2, 8),
             "max_samples": (100, 800)},
        ),
        (
            course(1.0, 1.5, 1.6, every=600, train_loss=[1.0, 1.5, 1.6]),
            {"lr_scheduler": "constant", "warmup_ratio": 0.05, "max_grad_norm": 10.0, "max_samples": 1800},
            {"lr_scheduler": None, "warmup_ratio": (0, 0.2), "max_grad_norm": (0.1, 100)},
        ),
    ],
)  # fmt: skip
def test_the_best_trial_is_not_advised_to_change_what_was_searched(
    reports: list[Report], values: dict[str, Any], spans: dict[str, Any]
) -> None:
    inside = advise(None, EndedRun(values, "complete", reports, best=(3, values), searched=spans))
    assert inside == []
    assert advise(None, EndedRun(values, "complete", reports))
    at = {name: (value, value) for name, value in values.items() if isinstance(value, int | float)}
    assert advise(None, EndedRun(values, "complete", reports, best=(3, values), searched=at))


def test_failed_runs_get_advice_despite_the_search() -> None:
    values = {"batch_size": 8, "learning_rate": 0.01}
    spans = {"batch_size": (4.0, 16.0), "learning_rate": (1e-4, 0.1)}
    seen = EndedRun(values, "out_of_memory", best=(3, values), searched=spans)
    assert advise(None, seen) == ["halve batch_size from 8 to 4: half the activations"]
    alone = EndedRun(values, "diverged", course(NAN), searched=spans)
    assert "lower learning_rate from 0.01 to 0.001" in advise(None, alone)
