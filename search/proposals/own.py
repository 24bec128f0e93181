"""Which settings each trial has of its own: a seed, and where to write.

The same for all trials, a seed would be that of the trainings that confirm too, and each trial would write
over what the one before it left.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import PurePath

from ...storage.files import CHECKPOINT, CONFIG, METRICS, OUTPUT
from ..plan import SEED
from .fields import Setting
from .syntax import called, name_of

HIGHEST_SEED = 2**31 - 1
TRIALS_OWN = {CHECKPOINT, CONFIG, METRICS, OUTPUT}  # names in a trial's folder
KEPT = r"(save[ds]?|out|outputs?|checkpoints?|ckpts?|snapshots?|exports?|artifacts?|model_(out|output|save))"
BESIDE = r"(logs?|logging|tb|tensorboard|results?|runs?|work|working|exp|experiments?|metrics|default_root)"
# By its name, a setting says where a script writes: `output_dir`, `save_path`, `logdir`, `results_file`.
PLACE = re.compile(
    rf"({KEPT}|{BESIDE})_?(dir|directory|folder)"
    r"|(save|out|outputs?|logs?|results?|exports?)_(to|path|file|filename|model|model_path|root|location)"
    r"|(checkpoints?|ckpts?|snapshots?)_(path|file|filename)"
)
NAMED_ALONE = re.compile(r"save|out|outputs?|logs?|results?")  # it does where its value is a place
LIKE_A_PLACE = re.compile(r".*[/.].*|out|outputs?|saved?|results?|runs?|models?|checkpoints?|ckpts?|logs?")
OF_LOGS = re.compile(rf"{BESIDE}_?\w*")
NAMES_A_FILE = re.compile(r"\w+_(path|file|filename|model_path)")

FILES = {  # what they are given is a file that they write
    *("save", "savez", "savefig", "savetxt", "save_file", "save_weights", "save_checkpoint", "dump"),
    *("to_csv", "to_json", "to_parquet", "FileHandler", "export"),
}
FOLDERS = {"makedirs", "save_pretrained", "save_model", "SummaryWriter", "save_to_disk", "CSVLogger"}
SEEDERS = {
    *("seed", "manual_seed", "manual_seed_all", "set_seed", "seed_everything", "default_rng", "RandomState"),
    *("set_random_seed", "PRNGKey", "fix_seed", "seed_all"),
}
OF_A_SPLIT = re.compile(r".*(split|fold|data|val|test|cv).*")  # its seed is to stay the same
OF_A_PATH = {"write_text": True, "write_bytes": True, "touch": True, "mkdir": False}  # True: a file
LEADING = {"join", "Path", "PurePath", "str", "abspath", "expanduser", "dirname", "fspath"}


@dataclass(frozen=True)
class Used:
    """Names by what a script does with them, as its source says it."""

    files: frozenset[str] = frozenset()  # that it writes
    folders: frozenset[str] = frozenset()  # that it writes into
    seeds: frozenset[str] = frozenset()  # that it seeds with


def used(tree: ast.AST) -> Used:
    """What a script does: `save(model, args.save)`, `open(f"{args.out}/x", "w")`, `set_seed(args.s)`."""
    files: set[str] = set()
    folders: set[str] = set()
    seeds: set[str] = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = called(call)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in SEEDERS:
            seeds |= {str(name_of(each)) for each in given if isinstance(each, ast.Name | ast.Attribute)}
        if name == "open" and _writes(call):
            places, whole = ([receiver] if receiver is not None else call.args[:1]), True
        elif name in OF_A_PATH and receiver is not None:
            places, whole = [receiver], OF_A_PATH[name]
        elif name in FILES or name in FOLDERS:
            places, whole = given, name in FILES
        else:
            continue
        for place in places:
            if (leading := _leading(place)) is not None:
                (files if whole and leading is place else folders).add(str(name_of(leading)))
    return Used(frozenset(files), frozenset(folders - files), frozenset(seeds))


def value_of_its_own(setting: Setting, found: Used = Used()) -> str | None:
    """What a setting is in each trial, with a macro such as `$seed`; None: the same in all."""
    name = setting.parameter.rpartition(".")[2].lower()
    if setting.choices:
        return None
    if SEED.fullmatch(name) or (name in found.seeds and not OF_A_SPLIT.fullmatch(name)):
        takes = setting.holds({"min": 0, "max": HIGHEST_SEED})
        return "$seed" if takes and (setting.number or setting.required) else None
    value = setting.value if isinstance(setting.value, str) else ""
    if name == "resume_from" and not (setting.number or value):
        return "$resume_from"  # as a parameter of this name, it would hide the macro
    if setting.number or not (value.strip() or (setting.required and setting.value is None)):
        return None
    file, folder = name in found.files, name in found.folders
    known = PLACE.fullmatch(name) or (
        NAMED_ALONE.fullmatch(name) and (not value or LIKE_A_PLACE.fullmatch(value.lower()))
    )
    if not (known or file or folder) or "://" in value:
        return None
    last = re.sub(r"[\s$]+", "_", PurePath(value).name)  # as a macro can have it
    is_file = file or (not folder and (PurePath(last).suffix if value else NAMES_A_FILE.fullmatch(name)))
    if OF_LOGS.fullmatch(name):
        last = last or name
        return f"$run/{'script_' if last in TRIALS_OWN else ''}{last}"
    return f"$checkpoint/{last or name}" if is_file else "$checkpoint"


def in_a_command(value: str) -> str:
    """The value as a command's word has it: `${seed}` for `$seed`."""
    return re.sub(r"\$(\w+)", r"${\1}", value)


def _writes(call: ast.Call) -> bool:
    """Whether an `open` is to write."""
    place = 0 if isinstance(call.func, ast.Attribute) else 1
    modes = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax") for mode in modes)


def _leading(node: ast.expr) -> ast.expr | None:
    """The name that a path begins with: `args.out` of `os.path.join(args.out, name)`."""
    if isinstance(node, ast.Name):
        return node
    if isinstance(node, ast.Attribute):
        return node if isinstance(node.value, ast.Name) else _leading(node.value)
    if isinstance(node, ast.BinOp):
        return _leading(node.left)
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return _leading(first.value) if isinstance(first, ast.FormattedValue) else None
    if isinstance(node, ast.Call) and called(node) in LEADING and node.args:
        return _leading(node.args[0])
    return None
