"""A Hydra configuration with a sweeper (Optuna's, or Hydra's own) as a space.

Its meaning is that of the packages `hydra-optuna-sweeper` 1.3.0 and `hydra-core` 1.3.8, whose parser reads
the values; the distributions are Optuna's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....spaces import SpaceError
from ....spaces.document import LARGEST_FILE
from ....spaces.fields import show
from ...errors import UsageError
from .. import draws
from ..draws import Draw
from .source import Section, Source
from .space import Converted, drawn, grid_size

PROGRAM = "app.py"
TRIALS, WORKERS = 20, 2  # of Hydra's Optuna sweeper, by default
LONGEST_VALUE = 5000  # characters
MOST_SCRIPTS = 100  # beside the configuration, that are looked at
SWEEPER = (
    "_target_", "defaults", "sampler", "direction", "storage", "study_name", "n_trials", "n_jobs",
    "max_failure_rate", "search_space", "params", "custom_search_space", "max_batch_size",
)  # fmt: skip
OF_OPTUNA = (
    "sampler", "direction", "study_name", "n_trials", "search_space", "custom_search_space", "storage",
)  # fmt: skip
SAMPLERS = {
    **{name: name for name in ("tpe", "random", "cmaes", "nsgaii", "grid", "qmc", "gp")},
    "motpe": "tpe",
}
OPTIONS_OF = {
    "tpe": ("n_startup_trials", "n_ei_candidates", "multivariate"),
    "gp": ("n_startup_trials",),
    "cmaes": ("n_startup_trials", "use_separable_cma"),
    "nsgaii": ("population_size",),
}
KINDS = ("int", "float", "categorical")  # of the older `search_space`


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of a configuration's sweeper."""
    made = Converted(source, source.file.stem)
    sweeper = Section(source, "", data).section("hydra").section("sweeper")
    is_optuna = _is_optuna(data, sweeper)
    sweeper.known(*SWEEPER)
    if sweeper.has("custom_search_space"):
        with source.part():
            raise sweeper.fault(
                "custom_search_space", "is a Python function that a space cannot read: write its parameters"
            )
    params = sweeper.section("params", None)
    if params.data:
        with source.part():
            _params(params, made, is_optuna=is_optuna)
    elif sweeper.has("search_space"):
        with source.part():
            _search_space(sweeper.section("search_space"), made)
    else:
        raise sweeper.fault("", '"params" is missing')
    if params.data and sweeper.has("search_space"):
        made.left_out["hydra.sweeper.search_space"] = "Hydra takes params where both are given"
    with source.part():
        made.name = sweeper.text("study_name", made.name)
    _command(source, made)
    with source.part():
        made.goal = _direction(sweeper)
    made.metric_remarks.append(
        "Hydra takes what the function returns, which has no name: name it here, and print it as a report"
    )
    with source.part():
        _search(sweeper, made, is_optuna=is_optuna)
    for key, why in (
        ("storage", "hpsearch.db holds the study"),
        ("max_failure_rate", "failed trials do not end a search"),
    ):
        if sweeper.has(key):
            made.left_out[f"hydra.sweeper.{key}"] = why
    return made


def _is_optuna(data: dict[str, Any], sweeper: Section) -> bool:
    """Whether the sweeper is Optuna's; Hydra's own tries every combination. Refuses all others."""
    defaults = data.get("defaults")
    listed = [each for each in defaults if isinstance(each, dict)] if isinstance(defaults, list) else []
    chosen = [
        str(value)
        for each in listed
        for key, value in each.items()
        if isinstance(key, str) and key.split()[-1:] == ["hydra/sweeper"]
    ]
    target = str(sweeper.data.get("_target_", ""))
    name = chosen[-1] if chosen else ""
    for other in ("ax", "nevergrad"):
        if name == other or f"hydra_{other}" in target:
            raise sweeper.fault("", f"is of Hydra's {other} sweeper, which is not converted; Optuna's is")
    return name == "optuna" or "optuna" in target or any(key in sweeper.data for key in OF_OPTUNA)


def _params(params: Section, made: Converted, *, is_optuna: bool) -> None:
    """Parameters in Hydra's grammar of overrides."""
    try:
        from hydra.core.override_parser.overrides_parser import OverridesParser
    except ImportError:
        raise UsageError(
            f"{params.source.file}: the values under {params.path} are in Hydra's own grammar: "
            "pip install 'hpsearch[hydra]', which reads it",
            code="extra",
        ) from None
    parser = OverridesParser.create()
    for name, value in params.data.items():
        with params.source.part():
            if name.startswith("~"):
                message = f"deletes {name[1:]} from the configuration, and gives it no value"
                raise params.fault(name, f"{message}: write {name} as a word of objective.command")
            if isinstance(value, dict | list) or value is None:
                raise params.fault(name, f"must be a text such as interval(0, 1), not {show(value)}")
            text = value if isinstance(value, str) else draws.literal(value)
            if len(text) > LONGEST_VALUE:
                raise params.fault(name, f"is longer than {LONGEST_VALUE:,} characters")
            try:
                override = parser.parse_override(f"{name}={text}")
                draw = _of_override(params, name, override, is_optuna=is_optuna)
                given = override.get_key_element()
                is_group = any(each.startswith(f"{given}.") for each in params.data)
                made.add(given, draw, params.at(name), name=f"{given}_group" if is_group else given)
            except SpaceError:
                raise
            except Exception as error:  # of Hydra and of its parser, which share no base
                if "glob(" in text:  # which needs the configuration's own folders
                    message = "names files of the configuration: list them, choice(a, b)"
                    raise params.fault(name, f"{show(text)} {message}") from None
                first = str(error).partition("\n")[0]
                raise params.fault(
                    name, f"{show(text)} is no value in Hydra's grammar: {first[:200]}"
                ) from None


def _of_override(params: Section, name: str, override: Any, *, is_optuna: bool) -> Draw:
    """The values of an override: as Optuna's distributions have them, or all as Hydra's own sweeper."""
    if not override.is_sweep_override():
        value = _plain(override.value())
        if "${" in draws.literal(value):
            raise params.fault(name, f"has the interpolation {show(value)}; leave it to the configuration")
        return draws.constant(value)
    value = override.value()
    tags = set(getattr(value, "tags", ()))
    strange = sorted(tags - {"log"})
    if override.is_interval_sweep():
        if strange:
            message = f"has the tag {show(strange[0])}, which Optuna's sweeper ignores"
            raise params.fault(name, f"{message}: the range would be linear; write log, or no tag")
        whole = type(value.start) is int and type(value.end) is int
        if whole:
            return drawn(params, draws.log_whole if tags else draws.whole, value.start, value.end, key=name)
        return drawn(params, draws.log_uniform if tags else draws.uniform, value.start, value.end, key=name)
    if "log" in tags:
        raise params.fault(name, "has the tag log, which counts only for an interval")
    draw = _of_values(params, name, override, is_optuna=is_optuna)
    ignored = f"sweepers there ignore its tag {', '.join(strange)}"
    return draw.remarked(ignored) if strange else draw


def _of_values(params: Section, name: str, override: Any, *, is_optuna: bool) -> Draw:
    """The values of a choice or a range."""
    from hydra.core.override_parser.types import Transformer

    value = override.value()
    shuffled, value.shuffle = getattr(value, "shuffle", False), False  # an order, which choices lack
    if override.is_range_sweep() and is_optuna and not shuffled:
        if float in (type(value.start), type(value.stop), type(value.step)):
            return drawn(params, draws.stepped, value.start, value.stop, value.step, key=name)
        if value.step < 1:
            raise params.fault(name, f"has a step of {value.step}; it must be at least 1")
        draw = drawn(params, draws.whole, value.start, value.stop, value.step, key=name)
        remark = "Optuna's sweeper has the end of a range too, Hydra's own has not"
        return draw.remarked(remark) if draw.is_searched and draw.value["max"] == value.stop else draw
    listed = [_plain(each) for each in override.sweep_iterator(transformer=Transformer.identity)]
    return drawn(params, draws.choices, listed, key=name)


def _plain(value: Any) -> Any:
    """A value of Hydra's parser as plain data."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    return getattr(value, "text", value)  # a quoted text


def _search_space(section: Section, made: Converted) -> None:
    """Parameters as mappings, as older sweepers had them."""
    for name in section.data:
        with section.source.part():
            inner = section.section(name)
            inner.known("type", "choices", "low", "high", "step", "log")
            made.add(name, _of_mapping(inner), inner.path)


def _of_mapping(section: Section) -> Draw:
    kind = section.one_of("type", KINDS)
    if kind == "categorical":
        return drawn(section, draws.choices, section.items("choices"), key="choices")
    low, high, step = section.number("low"), section.number("high"), section.number("step", None)
    log = section.flag("log", False)
    remarks = ["step counts for nothing beside log there"] if log and step is not None else []
    if kind == "int":
        if log:
            return drawn(section, draws.log_whole, int(low), int(high)).remarked(*remarks)
        if step is not None and int(step) < 1:
            raise section.fault("step", f"must be at least 1, not {show(step)}")
        return drawn(section, draws.whole, int(low), int(high), int(step or 1))
    if log:
        return drawn(section, draws.log_uniform, low, high).remarked(*remarks)
    if step is not None:
        return drawn(section, draws.stepped, low, high, step)
    return drawn(section, draws.uniform, low, high)


def _direction(sweeper: Section) -> str:
    direction = sweeper.get("direction", "minimize")
    if isinstance(direction, list):
        if len(direction) != 1:
            raise sweeper.fault("direction", "has several objectives; a space has one")
        (direction,) = direction
    if direction not in ("minimize", "maximize"):
        raise sweeper.fault("direction", f"must be minimize or maximize, not {show(direction)}")
    return str(direction)


def _search(sweeper: Section, made: Converted, *, is_optuna: bool) -> None:
    if not is_optuna:
        made.set("search", {"sampler": "grid", "seed": 0}, "", "Hydra's own sweeper tries every combination")
        size = None if made.source.issues else grid_size(made.parameters)
        if size is None and not made.source.issues:
            raise sweeper.fault("params", "has an interval; Hydra's own sweeper takes choices and ranges")
        made.set("budget.trials", size or 1)
        return
    sampler = sweeper.section("sampler", None)
    target = sampler.text("_target_", "optuna.samplers.TPESampler").rpartition(".")[2]
    kind = target.lower().removesuffix("sampler")
    if kind not in SAMPLERS:
        raise sampler.fault("_target_", f"{show(target)} has no counterpart; there is {', '.join(SAMPLERS)}")
    search: dict[str, Any] = {"sampler": SAMPLERS[kind], "seed": sampler.whole("seed", 0, least=0)}
    for key in sampler.data:
        if key in OPTIONS_OF.get(SAMPLERS[kind], ()):
            search[key] = sampler.get(key)
        elif key not in ("_target_", "_partial_", "seed"):
            made.left_out[f"hydra.sweeper.sampler.{key}"] = "the sampler here has no such option"
    trials = sweeper.whole("n_trials", TRIALS, least=1)
    remarks = [] if sweeper.has("n_trials") else [f"by default, {TRIALS} there"]
    if kind == "grid":
        size = None if made.source.issues else grid_size(made.parameters)
        if size is None and not made.source.issues:
            raise sampler.fault("_target_", "has no grid over an interval")
        trials = min(trials, size or trials)
    made.set("search", search, sampler.path if sampler.data else "")
    made.set("budget.trials", trials, sweeper.at("n_trials") if sweeper.has("n_trials") else "", *remarks)
    workers = sweeper.whole("n_jobs", WORKERS, least=1)
    given = [sweeper.at("n_jobs")] if sweeper.has("n_jobs") else ["", f"by default, {WORKERS} there"]
    made.set("execution.workers", workers, *given)


def _command(source: Source, made: Converted) -> None:
    """The application that reads the configuration, where one is beside it or above its folder."""
    folder = source.file.parent
    scripts = [
        path
        for each in dict.fromkeys((folder, folder.parent))
        for path in sorted(each.glob("*.py"))
        if path.is_file()
    ]
    apps = [str(path) for path in scripts[:MOST_SCRIPTS] if _is_app(path)]
    program = apps[0] if len(apps) == 1 else PROGRAM
    if len(apps) != 1:
        made.to_fill.append(PROGRAM)
    made.command = ["python", program, "${args_hydra}"]


def _is_app(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return b"hydra.main" in stream.read(LARGEST_FILE)
    except OSError:
        return False
