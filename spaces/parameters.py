"""The four kinds of parameter: a range, a choice, a constant, and one derived from others."""

from __future__ import annotations

import json
import random
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from .fields import Formula, Plain, members, raise_all, refuse, show
from .ranges import Conditional, Prior, Problems, Range, brief, prior_problems

MOST_CHOICES = 1000
Label = str | int | float | bool | None


class Choice(Conditional):
    """One of several values, without an order."""

    choices: list[Plain] = Field(max_length=MOST_CHOICES)
    """The values: texts, numbers, true, false, null or lists of these."""
    prior: Prior | None = None
    """Which value is believed to be good."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        return {"choices": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check(self) -> Choice:
        raise_all(self._problems())
        raise_all(prior_problems(self.accept, self.prior))
        return self

    def _problems(self) -> Problems:
        if not self.choices:
            yield "choices", "needs at least one value"
        labels: dict[Label, int] = {}
        for index, (choice, label) in enumerate(zip(self.choices, self.labels(), strict=True)):
            if isinstance(choice, dict):
                yield f"choices.{index}", "a choice is a scalar or a list, not a mapping"
            elif label in labels:
                first = self.choices[labels[label]]
                same = type(first) is type(choice)
                fault = "is listed twice" if same else f"equals {show(first)} before it"
                yield f"choices.{index}", f"{show(choice)} {fault}"
            labels.setdefault(label, index)

    def labels(self) -> list[Label]:
        """A scalar for each choice, as Optuna needs: a list becomes its JSON text."""
        return [_label(choice) for choice in self.choices]

    def value_of(self, label: Label) -> Any:
        """The choice that a label stands for; raises `ValueError` for any other label."""
        return self.choices[self.labels().index(label)]

    def sample(self, rng: random.Random) -> Any:
        """A random choice."""
        return rng.choice(self.choices)

    def middle(self) -> Any:
        """The first choice."""
        return self.choices[0]

    def values(self) -> list[Any]:
        """The choices, under the name that a discrete range has."""
        return self.choices

    def accept(self, value: Any) -> Any:
        """The choice that equals the value; raises `ValueError` where there is none."""
        for choice in self.choices:
            if choice == value and isinstance(choice, bool) is isinstance(value, bool):
                return choice
        known = ", ".join(map(show, self.choices[:12])) + (", ..." if len(self.choices) > 12 else "")
        raise ValueError(f"{show(value)} is none of {known}")

    def text(self) -> str:
        """The choices in words."""
        return f"choice {' | '.join(map(brief, self.choices))}"


class Constant(Conditional):
    """One fixed value of any shape."""

    value: Plain
    """The value."""

    @model_validator(mode="before")
    @classmethod
    def _from_scalar(cls, value: Any) -> Any:
        if value is None:
            raise refuse("has no value; a constant null is written {value: null}")
        return value if isinstance(value, dict) else {"value": value}

    def text(self) -> str:
        """The constant in words."""
        return f"constant {brief(self.value)}"


class Derived(Conditional):
    """A value calculated from other parameters: recorded, not searched."""

    expr: Formula
    """Arithmetic over parameter names, such as "2 * lora_r"."""

    def text(self) -> str:
        """The calculation in words."""
        return f"= {self.expr}"


def _kind(value: Any) -> str:
    if isinstance(value, Conditional):
        return type(value).__name__.lower()
    if isinstance(value, dict):
        keys = {"choices": "choice", "expr": "derived", "value": "constant"}
        return next((kind for key, kind in keys.items() if key in value), "range")
    return "choice" if isinstance(value, list) else "constant"


Parameter = Annotated[
    Annotated[Range, Tag("range")]
    | Annotated[Choice, Tag("choice")]
    | Annotated[Constant, Tag("constant")]
    | Annotated[Derived, Tag("derived")],
    Discriminator(_kind),
]


PARAMETERS = members(Parameter)


def describe(parameter: Conditional) -> str:
    """A parameter in one short line, such as `float 0.0001 .. 0.03, log, prior 0.002`."""
    assert isinstance(parameter, Range | Choice | Constant | Derived)
    text = parameter.text()
    if isinstance(parameter, Range | Choice) and parameter.prior is not None:
        text += f", prior {brief(parameter.prior.at)}"
    return text if parameter.when is None else f"{text}, {describe_condition(parameter)}"


def describe_condition(parameter: Conditional) -> str:
    """When a parameter exists, as `when kind is warm or hot`; nothing where it always does."""
    if isinstance(parameter.when, str):
        return f"when {parameter.when}"
    conditions = []
    for name, wanted in (parameter.when or {}).items():
        values = wanted if isinstance(wanted, list) else [wanted]
        conditions.append(f"{name} is {' or '.join(map(brief, values))}")
    return f"when {' and '.join(conditions)}" if conditions else ""


def largest(parameter: Parameter) -> Any:
    """The largest number that a parameter may be; None without a number, 1 where the value is derived."""
    if isinstance(parameter, Range):
        return parameter.max
    if isinstance(parameter, Derived):
        return 1
    values = parameter.choices if isinstance(parameter, Choice) else [parameter.value]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers, default=None)


def _label(choice: Any) -> Label:
    scalar = isinstance(choice, str | int | float | bool | None)
    return choice if scalar else json.dumps(choice, separators=(",", ":"), ensure_ascii=False)
