"""The space of `hf_lora` that ships, made out to a model: its name, its task, its learning rates.

    text = space_of_model("models/Llama-3.2-1B")

All else in it stays as it ships.
"""

from __future__ import annotations

import re
import textwrap

from ....objectives.hf_lora.defaults import ModelDefaults, defaults_of
from ....spaces import SpaceError, loads, shipped_text
from ....spaces.fields import TO_FILL
from ...errors import UsageError
from ...trials.yaml_text import one_line, text_of
from . import FOREIGN_FORM, TO_FILL_IN

SHIPPED_LENGTH = 128  # tokens of a row in the space that ships
LINE = 118  # letters of a comment's line, with its mark
ROWS = {  # what rows have for the tasks that cannot train on the text that ships
    "seq2seq_lm": "prompt and completion",
    "sequence_classification": "text and label",
}


def space_of_model(model: str) -> str:
    """The text of a space for a model, by its folder or its id in the hub's cache.

    Raises `ObjectiveError` where there is no such model, or its file does not say what is needed, and
    `UsageError` for a name that no space can hold.
    """
    text = shipped_text("hf_lora")
    for pattern, new in _changes(model, defaults_of(model)).items():
        text, count = re.subn(pattern, lambda _, new=new: new, text, flags=re.MULTILINE)  # type: ignore[misc]
        assert count == 1, f"{pattern} is in the space that ships {count} times"
    try:
        loads(text, model)
    except SpaceError as error:
        told = "; ".join(issue.message for issue in error.issues)
        raise UsageError(f"cannot write a space for the model {one_line(model)}: {told}") from error
    return text


def _changes(model: str, found: ModelDefaults) -> dict[str, str]:
    """What goes in the place of what is in the space that ships, by patterns of that."""
    rows = ROWS.get(found.task)
    head = f"LoRA on {one_line(model)}, with transformers and peft. Needs hpsearch[hf]. The task and the "
    head += "learning rates are first guesses, by the model's config.json; all else is as it ships."
    to_fill = f"{TO_FILL_IN}train_file (rows with {rows})\n" if rows else ""
    rate, low, high = (_short(found.learning_rate, decades) for decades in (0, -1, 1))
    why = f"A decade on either side of {rate}: {one_line(found.source)}."
    prior = f"prior: {{at: {rate}, confidence: medium}}"
    name = text_of({"value": model} if FOREIGN_FORM.search(model) else model)
    changes = {
        r"\A(# .*\n)+": _comment(head, "# ") + to_fill,
        r"^  # task: .*\n": f"  task: {found.task}\n",
        r"^  # model: .*\n": f"  model: {name}\n",
        r"^(  # .*\n)+  learning_rate: .*\n": _comment(why, "  # ")
        + f"  learning_rate: {{min: {low}, max: {high}, log: true, {prior}}}\n",
    }
    if rows:
        changes[r"(?<=^  train_file: )english\n"] = f"{TO_FILL}\n"
    if found.longest_row is not None and found.longest_row < SHIPPED_LENGTH:
        changes[rf"(?<=^  max_length: ){SHIPPED_LENGTH}"] = str(found.longest_row)
    return changes


def _comment(words: str, mark: str) -> str:
    """Words as the lines of a comment."""
    return "\n".join(textwrap.wrap(words, LINE, initial_indent=mark, subsequent_indent=mark)) + "\n"


def _short(number: float, decades: int) -> str:
    """A number in two digits, moved by decades: 4.3e-3."""
    digits, _, exponent = f"{number:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent) + decades}"
