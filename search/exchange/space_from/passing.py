"""How an option of a script is passed: flags, and options with several values.

A flag's value is true or false, whatever its words are: `${amp:--amp|}`, `${cache:--cache|--no-cache}`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

from ....spaces.stopping import snake
from .fields import Setting
from .syntax import is_number

# `json`: a list as `${args}` passes it; "": one value
Form = Literal["switch", "flag", "words", "repeat", "commas", "json", "literal", "own", ""]
LISTS = ("words", "repeat", "commas", "json", "literal")
# Flags that change what is learnt. Others stay as they are: those of speed and memory (--fp16, --flash,
# --compile), and those that only the script knows, such as --verbose.
WORTH_A_SEARCH = re.compile(
    r"(use_|with_|enable_)?(nesterov|amsgrad|rslora|dora|bias|(batch|layer|group|weight|rms)_?norm(alization)?|ema"
    r"|augment\w*|residual|mixup|cutmix|swa|tie_\w+|scale_\w+|normalize\w*|pre_?norm|stochastic_depth"
    r"|bidirectional|qk_?norm|rope|rotary\w*|gated\w*|freeze_\w+|packing|centered|decoupled?_\w+|balanced\w*)"
)
ADDS = "its values are added to its default"
NOT_LIKE_ITS_DEFAULT = "the values of its default are not like those that it takes"


def flag(name: str, parameter: str, on: str, off: str, value: bool, variable: str = "") -> Setting:
    """A flag, with the words for true and for false; empty: none."""
    regular = f"--no-{on.removeprefix('--')}"
    form: Form = "switch" if (on, off) == (name, "") else "flag" if (on, off) == (name, regular) else "own"
    words = (f"${{{parameter}:{on}|{off}}}",)
    setting = Setting(name, parameter, value, variable=variable, form=form, words=words)
    return _searched(setting)


def truth(setting: Setting, form: Form) -> Setting:
    """A setting that is true or false, for a library that reads all of them alike."""
    name, parameter = setting.name, setting.parameter
    if form in ("flag", "switch"):
        on, off = (name, f"--no-{name[2:]}") if form == "flag" else (name, "")
        if "." in name and form == "flag":  # tyro's --optim.no-amp, for which there is no macro of all
            outer, _, inner = name.rpartition(".")
            return flag(name, parameter, name, f"{outer}.no-{inner}", setting.value)
        if form == "switch" and setting.value is True:  # Tap's: its name makes it false
            on, off = "", name
        return flag(name, parameter, on, off, setting.value)
    setting = replace(setting, number=False)
    return _searched(literally(setting) if form == "literal" else setting)


def literally(setting: Setting) -> Setting:
    """A setting that is passed as Python writes it."""
    return replace(setting, form="literal", words=(f"{setting.name}=${{{setting.parameter}:literal}}",))


def _searched(setting: Setting) -> Setting:
    """With true and false as choices where they are worth a search."""
    worth = WORTH_A_SEARCH.fullmatch(snake(setting.parameter).rpartition(".")[2])
    return replace(setting, choices=(setting.value, not setting.value) if worth else ())


def several(
    setting: Setting, form: Form, values: Any, kind: str, *, count: int | None = None
) -> Setting | str:
    """An option with several values, or why it has to be left out.

    `kind`: the name of the type of its values; `count`: how many it takes.
    """
    if not isinstance(values, list | tuple):
        return "it takes several values, and has no list as its default"
    listed = list(values)
    if not _fits(listed, kind, form):
        return NOT_LIKE_ITS_DEFAULT
    if form == "words" and (
        (count is not None and len(listed) != count) or any(map(_like_an_option, listed))
    ):
        return NOT_LIKE_ITS_DEFAULT
    macro = f"${{{setting.parameter}}}" if form == "json" else f"${{{setting.parameter}:{form}}}"
    words = (setting.name, macro) if form == "words" else (f"{setting.name}={macro}",)
    return replace(setting, value=listed, number=False, choices=(), form=form, words=words)


def _fits(values: Sequence[Any], kind: str, form: Form) -> bool:
    """Whether a type makes of the texts of values what they are."""
    if kind == "int":
        return all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    if kind == "float":
        return all(map(is_number, values))
    if kind == "" and form in ("literal", "json"):
        return all(isinstance(value, str | int | float) for value in values)
    return kind in ("str", "None", "Path") and all(isinstance(value, str) for value in values)


def _like_an_option(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("-")


def of_all(options: Collection[Setting]) -> str | None:
    """The macro that passes all options in their forms; None if it takes a word for each."""
    forms = {option.form for option in options} - {"", "json"}
    lists = {option.form for option in options} & {*LISTS}
    if "own" in forms or len(forms & {"switch", "flag"}) > 1 or len(lists) > 1:
        return None
    texts = [option.value for option in options] + [each for option in options for each in option.choices]
    if "words" in forms and any(map(_like_an_option, texts)):
        return None
    underscored = all(option.name == f"--{option.parameter}" for option in options)
    dashed = all(option.name == f"--{option.parameter.replace('_', '-')}" for option in options)
    if not (underscored or dashed):
        return None
    words = ["dashes"] if not underscored else []
    words += ["switches"] * ("switch" in forms) + ["flags"] * ("flag" in forms)
    words += [form for form in ("words", "repeat", "commas", "literal") if form in forms]
    return f"${{args:{','.join(words)}}}" if words else "${args}"
