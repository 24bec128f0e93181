"""Settings that differ in each trial: a seed, and where to write.

If they were the same in all trials, confirmation runs would repeat the same seed, and each trial would
overwrite the files of the one before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePath

from ....spaces.stopping import snake
from ....storage.files import CHECKPOINT, CONFIG, METRICS, OUTPUT
from ...trials.seeds import is_seed
from .fields import Setting
from .origins import Origins, Scope
from .syntax import constant, keywords, name_of, nodes_of, root_of

HIGHEST_SEED = 2**31 - 1
TRIAL_FILES = {CHECKPOINT, CONFIG, METRICS, OUTPUT}  # names in a trial's folder
KEPT = r"(save[ds]?|out|outputs?|checkpoints?|ckpts?|snapshots?|exports?|artifacts?|model_(out|output|save))"
BESIDE = r"(logs?|logging|tb|tensorboard|results?|runs?|work|working|exp|experiments?|metrics|default_root)"
# Settings whose names say where a script writes: `output_dir`, `save_path`, `logdir`, `results_file`.
OUTPUT_PLACE = re.compile(
    rf"({KEPT}|{BESIDE})_?(dir|directory|folder)"
    r"|(save|out|outputs?|logs?|results?|exports?)_(to|path|file|filename|model|model_path|root|location)"
)
OUTPUT_IF_PLACE = re.compile(r"save|out|outputs?|logs?|results?")  # so do these, where the value is a place
# A part of a dotted name that needs the one before it, as in `output.dir`, and values that say enough.
PLACE = re.compile(r"dir|directory|folder|path|file|filename")
FOLDER_FOR_OUTPUT = re.compile(r"(\./)?(out|outputs?|results?|runs?)/?")
# Inputs that all trials share, or fetch once for all, even if a script creates the folder.
SHARED_INPUT = re.compile(
    r"(.*_)?(data(sets?)?|caches?|cached|inputs?|downloads?|corpus|corpora|pretrained)"
    r"_?(root|dir|directory|folder|path|file|home)?(_.*)?"
)
WRITTEN_NAME = re.compile(r"(.*_)?(save[ds]?|out|outputs?|exports?|logs?|results?)_?(dir|path|file)?(_.*)?")
LIKE_A_PLACE = re.compile(r".*[/.].*|out|outputs?|saved?|results?|runs?|models?|checkpoints?|ckpts?|logs?")
RESUMES = re.compile(r"(resume|restore)(_(from|path|file))*")  # from what, only the script shows
RESUMES_CHECKPOINT = re.compile(r"(resume|restore)(_from)?_(checkpoint|ckpt)(_(path|file))?")
OF_LOGS = re.compile(rf"{BESIDE}_?\w*")
NAMES_A_FILE = re.compile(r"\w+_(path|file|filename|model_path)")

# Which argument is the path of what writes, by its place, or one of the keywords: of a method,
# `model.save(path)`, and where that is another one, of a module's function, `torch.save(model, path)`.
FILES = {
    **dict.fromkeys(("save", "save_weights", "save_checkpoint", "save_model", "export"), 0),
    **dict.fromkeys(("savez", "savez_compressed", "savefig", "savetxt", "imwrite", "imsave"), 0),
    **dict.fromkeys(("ModelCheckpoint", "CSVLogger", "FileHandler"), 0),
    **dict.fromkeys(("to_csv", "to_json", "to_parquet", "to_pickle", "to_feather"), 0),
    **dict.fromkeys(("dump", "save_file", "save_image", "write_table", "copyfile", "copy2", "copytree"), 1),
    "basicConfig": 99,  # by its keyword alone
}
FILES_OF_MODULES = {"save": 1, "save_model": 1, "export": 2, "save_checkpoint": 99}
PATH_FIRST = {"numpy", "jax", "flax", "cupy", "torchaudio"}  # np.save(path, array)
FOLDERS = {"save_pretrained", "SummaryWriter", "save_to_disk", "TensorBoardLogger", "TrainingArguments"}
KEYWORDS = {
    *("f", "fp", "file", "stream", "filename", "fname", "filepath", "path", "path_or_buf", "where"),
    *("log_dir", "logdir", "save_dir", "save_directory", "dirpath", "output_dir", "dataset_path", "dst"),
}
OPENS = {"open", "File", "ZipFile", "GFile"}
OF_A_PATH = {"write_text", "write_bytes", "touch"}
READS = re.compile(
    r"(load|read|from|parse)(_\w+)?|open|listdir|scandir|i?glob|rglob|iterdir|walk|(snapshot_|hf_hub_)?download"
    r"|\w*urlretrieve|imread|genfromtxt|\w+Folder|\w+_from_\w+"
)
KEEPS = re.compile(r"(save|write|dump|export|store)_\w+")  # in some file of those that it is given
SEEDERS = {
    *("seed", "manual_seed", "manual_seed_all", "set_seed", "seed_everything", "default_rng", "RandomState"),
    *("set_random_seed", "PRNGKey", "fix_seed", "seed_all", "Random", "SeedSequence"),
}
OF_A_SPLIT = re.compile(r".*(split|fold|data|val|test|cv).*")  # its seed is to stay the same


@dataclass(frozen=True)
class OptionUse:
    """The names of options by what a script does with them, judging by its source."""

    files: frozenset[str] = frozenset()  # that it writes
    folders: frozenset[str] = frozenset()  # that it writes into
    read: frozenset[str] = frozenset()  # that it reads and does not write
    filled: frozenset[str] = frozenset()  # for which it uses another place where they have no value
    seeds: frozenset[str] = frozenset()  # that it seeds with


def option_use(tree: ast.Module, commands: Collection[ast.AST] = ()) -> OptionUse:
    """How a script uses options: `save(model, args.save)`, `open(f"{args.out}/x", "w")`, `set_seed(args.s)`.

    `commands` are the functions whose parameters are options.
    """
    origins = Origins(tree, commands)
    files, folders, made, beside, read, taken, kept, filled, seeds = (set[str]() for _ in range(9))
    for scope, call in origins.nodes:
        if not isinstance(call, ast.Call):
            continue
        name = str(name_of(call))
        if name in SEEDERS:
            seeds |= _seeds(call, scope, origins)
        written = [each for path in _written(call, origins) for each in origins.of(path, scope)]
        created = [each for path in _made(call, origins) for each in origins.of(path, scope)]
        for each in written:
            (folders if each.how == "within" or name in FOLDERS else files).add(each.option)
        for each in created:
            (beside if each.how == "begins" else made).add(each.option)
        filled |= {each.option for each in (*written, *created) if each.filled}
        sources = [each for path in _read(call, origins) for each in origins.of(path, scope)]
        taken |= {each.option for each in sources}
        read |= {each.option for each in sources if each.how == "is"}
        if KEEPS.fullmatch(name):
            kept |= {each.option for argument in _all(call) for each in origins.of(argument, scope)}
    # A folder that is created may hold what is downloaded: then it is read too.
    files |= beside - taken
    folders |= made - taken
    return OptionUse(*map(frozenset, (files, folders - files, read - files - folders - kept, filled, seeds)))


def trial_value(setting: Setting, use: OptionUse = OptionUse()) -> str | None:
    """A setting's value in each trial, with a macro such as `$seed`; None where all trials share it."""
    name, in_code = snake(setting.parameter), setting.name_in_code
    outer = snake(setting.parameter.rpartition(".")[0])
    is_place = outer and PLACE.fullmatch(name)
    if is_place:
        name = f"{outer}_{name}"
    if setting.choices:
        return None
    if is_seed(name) or (in_code in use.seeds and not OF_A_SPLIT.fullmatch(name)):
        takes = setting.holds({"min": 0, "max": HIGHEST_SEED})
        return "$seed" if takes and (setting.number or setting.required) else None
    value = setting.value if isinstance(setting.value, str) else ""
    none = setting.value in (None, "") and not (setting.number or setting.required or setting.unread)
    is_path = RESUMES_CHECKPOINT.fullmatch(name) or (in_code in use.read and RESUMES.fullmatch(name))
    # A first attempt goes without the option, which is seen in --resume=PATH, but not in -rPATH.
    if none and is_path and not (setting.form or re.match(r"-[^-]", setting.name)):
        return "$checkpoint:last"
    if name == "resume_from" and not (setting.number or value):
        return "$resume_from"  # a parameter of this name would hide the macro
    has_value = value.strip() or (setting.required and setting.value is None) or in_code in use.filled
    if setting.number or not has_value or "://" in value:
        return None
    if in_code in use.read or (SHARED_INPUT.fullmatch(name) and not WRITTEN_NAME.fullmatch(name)):
        return None
    file, folder = in_code in use.files, in_code in use.folders
    known = (
        OUTPUT_PLACE.fullmatch(name)
        or (OUTPUT_IF_PLACE.fullmatch(name) and (not value or LIKE_A_PLACE.fullmatch(value.lower())))
        or (is_place and FOLDER_FOR_OUTPUT.fullmatch(value))
    )
    if not (known or file or folder):
        return None
    last = re.sub(r"[\s$]+", "_", PurePath(value).name)  # characters that a macro allows
    is_file = file or (not folder and (PurePath(last).suffix if value else NAMES_A_FILE.fullmatch(name)))
    if OF_LOGS.fullmatch(name):
        last = last or name
        return f"$run/{'script_' if last in TRIAL_FILES else ''}{last}"
    return f"$checkpoint/{last or name}" if is_file else "$checkpoint"


def as_word(value: str) -> str:
    """The value as a word of the command: `${seed}` for `$seed`."""
    return re.sub(r"\$(\w+(:last)?)", r"${\1}", value)


def _seeds(call: ast.Call, scope: Scope, origins: Origins) -> set[str]:
    """The options that a call seeds with, among those of `args.seed + args.rank`, `args.s or 0`."""
    parts = [part for each in _all(call) for part in nodes_of(each, ast.expr)]
    options = {origin.option for part in parts for origin in origins.of(part, scope)}
    named = set(filter(is_seed, options))
    return named or (options if len(options) == 1 else set())


def _written(call: ast.Call, origins: Origins) -> list[ast.expr]:
    """The paths that a call writes a file to, or files into."""
    name, receiver = str(name_of(call)), origins.receiver(call)
    if name in OPENS:
        return _opened(call, receiver) if _writes(call, receiver) else []
    if name in OF_A_PATH:
        return [] if receiver is None else [receiver]
    index = 0 if name in FOLDERS else FILES.get(name)
    packages = origins.imported.get(str(root_of(call.func)), [])
    if receiver is None and name in FILES_OF_MODULES and not PATH_FIRST.intersection(packages[:1]):
        index = FILES_OF_MODULES[name]
    if index is None or origins.defined(call):  # what a function of the script writes is found inside it
        return []
    return _given(call, index)


def _made(call: ast.Call, origins: Origins) -> list[ast.expr]:
    """The folder that a call creates."""
    if name_of(call) == "mkdir":
        return _opened(call, origins.receiver(call))
    return _given(call, 0) if name_of(call) == "makedirs" else []


def _read(call: ast.Call, origins: Origins) -> list[ast.expr]:
    """The paths that a call may read, or download to."""
    name, receiver = str(name_of(call)), origins.receiver(call)
    if name in OPENS:
        return [] if _writes(call, receiver) else _opened(call, receiver)
    if READS.fullmatch(name) or "download" in keywords(call):
        return _all(call) if receiver is None else [receiver, *_all(call)]
    return []


def _all(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _given(call: ast.Call, index: int) -> list[ast.expr]:
    """The argument at this index, and those by one of `KEYWORDS`."""
    named = (value for name, value in keywords(call).items() if name in KEYWORDS)
    return [*call.args[index : index + 1], *named]


def _opened(call: ast.Call, receiver: ast.expr | None) -> list[ast.expr]:
    return _given(call, 0) if receiver is None else [receiver]


def _writes(call: ast.Call, receiver: ast.expr | None) -> bool:
    """Whether an `open` writes."""
    index = 1 if receiver is None else 0
    modes = [*call.args[index : index + 1], keywords(call).get("mode")]
    return any(set(str(constant(mode) or "")) & set("wax") for mode in modes)
