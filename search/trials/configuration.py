"""The configuration of a trial, read from the study."""

from __future__ import annotations

from typing import Any

from optuna.trial import FrozenTrial

from ...spaces import Choice, Range, Spec


def known_config(spec: Spec, trial: FrozenTrial) -> dict[str, Any] | None:
    """The configuration of a trial; None if it has not begun, or another program wrote it incompletely."""
    try:
        return config_of(spec, trial)
    except (KeyError, ValueError):
        return None


def config_of(spec: Spec, trial: FrozenTrial) -> dict[str, Any]:
    """The full configuration of a trial: searched, constant and derived values, in the file's order.

    Raises `KeyError` if it lacks a parameter: it has not begun, or another program wrote it.
    """

    def stored(name: str, parameter: Range | Choice) -> Any:
        value = trial.params[name]
        return parameter.value_of(value) if isinstance(parameter, Choice) else value

    return spec.space.resolve(stored)
