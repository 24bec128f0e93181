"""The parameters of the objective `hf_lora`. They are checked before any library is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...trainer.config.rules import Need, Rule, one_of, optional, switch, text, whole
from ...trainer.config.training import (
    ADAM_OPTIONS,
    NAMED_CORPORA,
    NEEDS,
    NOT_IDENTIFYING,
    OPTIMIZERS,
    SPLIT_NEED,
    Adapters,
    TrainingConfig,
)

TASKS = ("causal_lm", "seq2seq_lm", "sequence_classification")


@dataclass(frozen=True, kw_only=True)
class Config(Adapters, TrainingConfig):
    """The model and the data; the parameters of training are those of `lora`."""

    objective: ClassVar[str] = "hf_lora"
    not_identifying: ClassVar[tuple[str, ...]] = (*NOT_IDENTIFYING, "local_files_only")
    needs: ClassVar[Mapping[str, Need]] = NEEDS | {
        **dict.fromkeys(ADAM_OPTIONS, one_of("optimizer", "adamw")),
        "momentum": one_of("optimizer", "sgd"),
        "split_seed": SPLIT_NEED,
        **dict.fromkeys(("prompt_field", "completion_field"), one_of("task", "causal_lm", "seq2seq_lm")),
        "text_field": one_of("task", "causal_lm", "sequence_classification"),
        "label_field": one_of("task", "sequence_classification"),
    }

    task: str = text("causal_lm", TASKS, "what the model is for")
    model: str | None = optional(
        str, "", "a folder with a model, or its id on the hub (default: the small GPT that ships, as a GPT-2)"
    )
    revision: str | None = optional(str, "", "branch, tag or commit of a model on the hub (default: main)")
    local_files_only: bool = switch(
        "use only models in this machine's cache; false: download if missing", default=True
    )
    train_file: str = text(
        "english", (), "a .jsonl, .json, .csv, .tsv or text file, or a folder; or english, python"
    )
    prompt_field: str | None = optional(str, "", "rows: the field with the prompt")
    completion_field: str | None = optional(str, "", "rows: the field with the completion to learn")
    label_field: str | None = optional(str, "", "rows: the field with the class (default: label)")
    split_seed: int = whole(0, "[0, 4294967295]", "of the choice of validation rows: the same for all trials")
    eval_samples: int | None = optional(
        int, "[1, inf)", "rows to validate on, evenly spread, the same ones every time (default: all)"
    )
    max_length: int = whole(
        128, "[2, 1048576]", "tokens of a row: longer rows are truncated, plain text continues in the next"
    )
    target_modules: str | list[str] | tuple[str, ...] | None = field(
        default="all-linear",
        metadata={"rule": Rule(list, "layers to adapt: names, or all-linear (null: the default of peft)",
                               optional=True)},
    )  # fmt: skip
    load_in_4bit: bool = switch("keep the frozen model in 4 bits (QLoRA); needs bitsandbytes")
    optimizer: str = text("adamw", tuple(o for o in OPTIMIZERS if o != "muon"), "the optimizer")
    momentum: float | None = optional(float, "[0, 1)", "sgd: weight of past gradients (default: 0.9)")
    nesterov: bool = switch("sgd: Nesterov momentum")

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        problems = super()._contradictions(values)
        task = values["task"]
        if task != "causal_lm" and values["model"] is None:
            problems.append(f"model: the default model is for causal_lm; name one for {task} (model: ...)")
        if task != "causal_lm" and values["train_file"] in NAMED_CORPORA:
            rows = "a text and a label" if task == "sequence_classification" else "a prompt and a completion"
            problems.append(f"train_file: {values['train_file']!r} is text; {task} needs rows with {rows}")
        if (values["prompt_field"] is None) != (values["completion_field"] is None):
            problems.append("prompt_field, completion_field: found one of them, needs both or none")
        return problems

    def sharing_problems(self, strategy: str) -> list[str]:
        problems = super().sharing_problems(strategy)
        if self.load_in_4bit and strategy != "ddp":
            problems.append(
                f"load_in_4bit: found true, but {strategy} needs weights of 16 or 32 bits; use ddp"
            )
        return problems

    @property
    def targets(self) -> str | list[str] | None:
        """`target_modules` in the form that peft takes: a list of names, "all-linear", or None."""
        targets = self.target_modules
        if targets is None or targets == "all-linear" or targets == ("all-linear",):
            return "all-linear" if targets else None
        return [targets] if isinstance(targets, str) else list(targets)
