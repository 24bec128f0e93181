"""Runs an unchanged function written for Optuna, `objective(trial)`: `optuna:train.py:objective`.

It gets an `OptunaTrial`, whose values are those that the search has chosen. The search samples, prunes and
stores: no study of Optuna's is opened here, and `study.optimize` of the user's file is not run. With
`optuna:train.py:__main__`, the file is run as a program up to there: the objective is what it is given.
"""

from __future__ import annotations

import datetime
import difflib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import BaseTrial

from ..base import Objective, ObjectiveError, SpaceMismatch, Trial, TrialEnded, TrialStopped
from .function import MAIN, SearchBegins, as_main, load_function, place_of, run_to_search
from .macros import flat
from .surroundings import told_in_variables


def load_optuna(name: str, search: Mapping[str, Any], folder: str | None = None) -> Objective:
    """Import an Optuna objective; `search` is its study's name, goal and space, as far as known.

    Raises `ObjectiveError` if there is no such file, module or function.
    """
    with _without_searches():
        if name.endswith(f":{MAIN}"):
            searched, main = run_to_search(name, folder)
            return OptunaObjective(searched, search, main)
        function: Any = load_function(name, folder)
    if isinstance(function, type):
        made = f'add `objective = {function.__name__}(...)` and name "objective"'
        raise ObjectiveError(f'objective "{name}" is a class, not a function that takes a trial; {made}')
    return OptunaObjective(function, search)


class OptunaObjective:
    """An Optuna objective as one of hpsearch."""

    def __init__(self, function: Any, search: Mapping[str, Any], main: ModuleType | None = None) -> None:
        """`main` is the module of the program that made the function, if it was run for that."""
        self._function = function
        self._main = main
        self._search = search

    def __call__(self, trial: Trial, /) -> float:
        own = OptunaTrial(trial, self._search)
        with told_in_variables(trial), as_main(self._main):
            try:
                value = self._function(own)
            except optuna.TrialPruned as error:
                own.raise_mismatch()
                if own.should_prune():
                    raise TrialStopped from error
                raise TrialEnded(str(error)) from error
            except Exception:
                own.raise_mismatch()
                raise
        own.raise_mismatch()
        if isinstance(value, Sequence) and not isinstance(value, str):
            raise SpaceMismatch(
                f"the objective returned {len(value)} values, and a search has one metric: return that one, "
                "and keep the others with trial.set_user_attr(name, value)"
            )
        if not own.should_prune() and (idle := own.not_asked()):
            trial.remark("not asked", f"the objective never suggested {', '.join(idle)}, which the space has")
        return value  # type: ignore[no-any-return]


class OptunaTrial(BaseTrial):
    """The trial that an Optuna objective gets: hpsearch's own, with the methods of Optuna's.

    `report` returns also when the search ends the trial, and `should_prune` is then true. An objective that
    does not ask ends at its next report.
    """

    def __init__(self, trial: Trial, search: Mapping[str, Any]) -> None:
        self._trial = trial
        self._trial_id = trial.number
        self._values = flat(trial.params)
        self._space: Mapping[str, Mapping[str, Any]] | None = search.get("space")
        self._suggested: dict[str, Any] = {}
        self._distributions: dict[str, BaseDistribution] = {}
        self._user_attrs: dict[str, Any] = {}
        self._began = datetime.datetime.now()
        self._mismatch: SpaceMismatch | None = None
        self._stopped = False
        self.study = StudyOfTrial(search)

    # Values

    def suggest_float(
        self, name: str, low: float, high: float, step: float | None = None, log: bool = False
    ) -> float:
        return self._suggest("float", name, FloatDistribution(low, high, log=log, step=step))  # type: ignore[no-any-return]

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return self.suggest_float(name, low, high, step=q)

    def suggest_int(self, name: str, low: int, high: int, step: int = 1, log: bool = False) -> int:
        return self._suggest("int", name, IntDistribution(low, high, log=log, step=step))  # type: ignore[no-any-return]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about choices that a database cannot store: lists, for example
            asked = CategoricalDistribution(choices)
        return self._suggest("categorical", name, asked)

    def _suggest(self, kind: str, name: str, asked: BaseDistribution) -> Any:
        place = place_of(name)
        call = f'suggest_{kind}("{name}", ...)'
        self._check(call, place, asked)
        value = _as_asked(self._values[place], asked)
        if value is _NOT_ASKED:
            text = f"{call} asks for {_line(place, asked)}, and the value is {_text(self._values[place])}"
            if self._space is not None or isinstance(asked, CategoricalDistribution):
                self._fail(f"{text}, which is none of these")
            self._trial.remark(f"outside {place}", text)
            value = float(self._values[place]) if kind == "float" else self._values[place]
        self._suggested[name], self._distributions[name] = value, asked
        return value

    def _check(self, call: str, place: str, asked: BaseDistribution) -> None:
        """Raise `SpaceMismatch` unless the space has this parameter, with this range or these choices."""
        space = self._values if self._space is None else self._space
        if place not in space:
            near = difflib.get_close_matches(place, space, 1)
            hint = f'; did the script mean "{near[0]}"?' if near else ""
            where = "configuration" if self._space is None else "space"
            self._fail(f"{call}: the {where} has no such parameter{hint}; it needs {_line(place, asked)}")
        says = {} if self._space is None else self._space[place]
        if place not in self._values:
            why = f"only {when}" if (when := says.get("when")) else "with pass: false, for itself"
            self._fail(f"{call}: the space has {place} {why}, and this trial has none: {_text(self._values)}")
        if "min" in says and asked not in _ranges(says):
            self._differs(call, place, asked, says)
        if "choices" in says and not (
            isinstance(asked, CategoricalDistribution) and _same_choices(asked.choices, says["choices"])
        ):
            self._differs(call, place, asked, says)

    def _differs(self, call: str, place: str, asked: BaseDistribution, says: Mapping[str, Any]) -> NoReturn:
        self._fail(
            f"{call} asks for {_line(place, asked)}, and the space says {_line_of(place, says)}: "
            "make them equal"
        )

    def _fail(self, message: str) -> NoReturn:
        self._mismatch = self._mismatch or SpaceMismatch(message)
        raise self._mismatch

    def raise_mismatch(self) -> None:
        """Raise the first `SpaceMismatch`, if any, even if the objective has caught it."""
        if self._mismatch is not None:
            raise self._mismatch

    def not_asked(self) -> list[str]:
        """The searched parameters of this trial that the objective did not ask for."""
        asked = {place_of(name) for name in self._suggested}
        searched = (n for n, says in (self._space or {}).items() if "min" in says or "choices" in says)
        return [name for name in searched if name in self._values and name not in asked]

    # Reports

    def report(self, value: float, step: int) -> None:
        try:
            number, whole = float(value), int(step)  # as Optuna does, of texts too
        except (TypeError, ValueError):
            raise TypeError(f"report({value!r}, {step!r}): it takes a number and a whole step") from None
        try:
            self._trial.report(number, whole)
        except TrialStopped:
            if self._stopped:
                raise
            self._stopped = True

    def should_prune(self) -> bool:
        return self._stopped

    # What it is

    def set_user_attr(self, key: str, value: Any) -> None:
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f'set_user_attr("{key}", ...): {error}') from None
        self._user_attrs[key] = value
        self._trial.set_attribute(key, value)

    def set_constraint(self, key: str, value: float) -> None:
        raise ObjectiveError(
            f'set_constraint("{key}", ...): hpsearch knows constraints of configurations only: write them '
            "under constraints: in the space"
        )

    @property
    def params(self) -> dict[str, Any]:
        return dict(self._suggested)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self._user_attrs)

    @property
    def system_attrs(self) -> dict[str, Any]:
        return {}

    @property
    def relative_params(self) -> dict[str, Any]:
        return {}

    @property
    def datetime_start(self) -> datetime.datetime:
        return self._began

    @property
    def number(self) -> int:
        return self._trial.number

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f'a trial of hpsearch has no "{name}" of Optuna\'s: the search stores its trials itself'
        )


class StudyOfTrial:
    """What an Optuna objective may ask of its study. The study itself is in the search's own process."""

    def __init__(self, search: Mapping[str, Any]) -> None:
        self.study_name: str = search.get("study", "hpsearch")
        maximize = search.get("goal") == "maximize"
        self.direction = StudyDirection.MAXIMIZE if maximize else StudyDirection.MINIMIZE
        self.directions = [self.direction]
        self.user_attrs: dict[str, Any] = {}
        self.system_attrs: dict[str, Any] = {}

    def _is_multi_objective(self) -> bool:
        return False

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f'trial.study has no "{name}" here: the search owns the study, and a trial sees its direction '
            "and name only"
        )


_NOT_ASKED = object()


def _as_asked(value: Any, asked: BaseDistribution) -> Any:
    """A value as the objective asked for it; `_NOT_ASKED` if it is none of those values."""
    if isinstance(asked, CategoricalDistribution):
        return next((choice for choice in asked.choices if _same(choice, value)), _NOT_ASKED)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NOT_ASKED
    if isinstance(asked, IntDistribution) and (not float(value).is_integer() or not asked._contains(value)):
        return _NOT_ASKED
    if isinstance(asked, IntDistribution):
        return int(value)
    return float(value) if asked._contains(float(value)) else _NOT_ASKED


def _ranges(says: Mapping[str, Any]) -> Iterator[BaseDistribution]:
    """The distributions that a range of the space is the same as."""
    low, high, step = says["min"], says["max"], says.get("step")
    log = bool(says.get("log") or says.get("factor"))
    if isinstance(low, int) and isinstance(high, int):
        yield IntDistribution(low, high, log=log, step=step or 1)
    else:
        yield FloatDistribution(low, high, log=log, step=step)


def _same_choices(asked: Sequence[Any], says: Sequence[Any]) -> bool:
    return len(asked) == len(says) and all(any(_same(one, other) for other in says) for one in asked)


def _same(one: Any, other: Any) -> bool:
    """Whether two choices are the same; a tuple is a list in a space, and True is not 1."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _line(name: str, asked: BaseDistribution) -> str:
    """What an objective asks for, as a line of a space."""
    if isinstance(asked, CategoricalDistribution):
        return _line_of(name, {"choices": asked.choices})
    assert isinstance(asked, IntDistribution | FloatDistribution)
    if asked.low == asked.high:
        return f"{name}: {asked.low}"
    step = None if asked.step == 1 and isinstance(asked, IntDistribution) else asked.step
    return _line_of(name, {"min": asked.low, "max": asked.high, "log": asked.log, "step": step})


def _line_of(name: str, says: Mapping[str, Any]) -> str:
    """A searched parameter as a line of a space."""
    if "choices" in says:
        return f"{name}: {_text(says['choices'])}"
    parts = [f"min: {says['min']}, max: {says['max']}"]
    parts += [f"{key}: {_text(says[key])}" for key in ("log", "step", "factor") if says.get(key)]
    return f"{name}: {{{', '.join(parts)}}}"


def _text(value: Any) -> str:
    return json.dumps(value, default=repr)


@contextmanager
def _without_searches() -> Iterator[None]:
    """Let `study.optimize` of the user's file end its import instead of running a search in each worker.

    The studies that it makes until then are in memory alone: those of a database stay as they are.
    """
    create = optuna.create_study

    def optimize(study: Any, func: Any = None, *given: Any, **named: Any) -> NoReturn:
        raise SearchBegins(func)

    def create_study(*, storage: Any = None, load_if_exists: bool = False, **named: Any) -> optuna.Study:
        return create(**named)

    def load_study(*, storage: Any = None, **named: Any) -> optuna.Study:
        return create(**named)

    def delete_study(**named: Any) -> None:
        """Of a database, it stays."""

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(optuna.Study, "optimize", optimize))
        for replaced in (create_study, load_study, delete_study):
            for module in (optuna, optuna.study):
                stack.enter_context(mock.patch.object(module, replaced.__name__, replaced))
        yield
