"""A sweep of Axolotl's (`axolotl train config.yaml --sweep sweep.yaml`) as a space.

Its meaning is that of the package `axolotl` 0.19.0 (`cli/utils/sweeps.py` and `train.py`): every combination
of the lists, with each mapping under `_`.
"""

from __future__ import annotations

import re
from typing import Any

from ....spaces import SpaceError
from ....spaces.document import read, text_of
from ....spaces.fields import show
from .. import draws
from .source import Section, Source
from .space import Converted, drawn, grid_size

CONFIG = "config.yaml"
GROUP = "group"  # the helper that chooses among the mappings under `_`
METRIC = "eval_loss"


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of a sweep."""
    top = Section(source, "", data)
    made = Converted(source, source.file.stem, metric=METRIC, goal="minimize")
    groups = top.items("_", None) or []
    for name in data:
        if name != "_":
            with source.part():
                values = top.get(name)
                if not isinstance(values, list) or not values:
                    raise top.fault(name, f"must be a list of values, not {show(values)}")
                made.add(name, drawn(top, draws.choices, values, key=name), name)
    if groups:
        with source.part():
            _groups(top, groups, made)
    config = _config(source)
    if config is None:
        made.to_fill.append(CONFIG)
    words = f"${{config:{config or CONFIG} output_dir=$checkpoint}}"
    made.command = ["axolotl", "train", words]
    made.remarks += [
        "Axolotl has no metric: it trains every combination. Here the lowest eval_loss wins; set",
        "val_set_size and evals_per_epoch in the configuration, so that Axolotl evaluates.",
    ]
    made.set("search", {"sampler": "grid", "seed": 0})
    size = 1 if source.issues else grid_size(made.parameters)
    made.set("budget.trials", size, "", "all combinations")
    return made


def _groups(top: Section, groups: list[Any], made: Converted) -> None:
    """Mappings, one of which is chosen as a whole."""
    for index, group in enumerate(groups):
        if not isinstance(group, dict) or not group:
            raise top.fault(f"_[{index}]", f"must be a mapping with keys, not {show(group)}")
    names = list(dict.fromkeys(name for group in groups for name in group))
    for name in names:
        if name in top.data:
            where = next(index for index, group in enumerate(groups) if name in group)
            raise top.fault(f"_[{where}].{name}", f'"{name}" has a list of its own too, which "_" overrides')
    if len(groups) == 1:
        for name, value in groups[0].items():
            made.add(name, draws.constant(value), f"_[0].{name}")
        return
    why = 'a helper: the number of the mapping under "_"'
    helper = GROUP if GROUP not in names else f"{GROUP}_of_values"
    made.add_one_of(top, groups, helper, "_", why, lambda index, name: f"_[{index}].{name}")


def _config(source: Source) -> str | None:
    """The configuration beside the sweep; None where there is none, or more than one."""
    found = []
    for path in sorted(source.file.parent.glob("*.y*ml")):
        if (
            path.suffix not in (".yaml", ".yml")
            or path == source.file
            or not path.is_file()
            or re.search(r"[\s$}]", str(path))
        ):
            continue
        try:
            data, _, _ = read(text_of(path), str(path))
        except (OSError, ValueError, SpaceError):
            continue
        if isinstance(data, dict) and "base_model" in data and "objective" not in data:
            found.append(str(path))
    return found[0] if len(found) == 1 else None
