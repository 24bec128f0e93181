"""What a submitted space may name: code and files of the server.

A space over HTTP comes from somebody else. Objectives that hpsearch brings may be searched by whoever may
write; code of one's own needs the scope `code`, which equals a shell of the server's user. Files must lie in
the server's roots, in the bundle that was submitted with the space, or where the study has its code whose
space is searched again, wherever links lead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from ...objectives.catalog import BUILT_IN
from ...objectives.guides import preset_values
from ...objectives.info import ObjectiveInfo
from ...objectives.user.function import library_of
from ...spaces import Choice, Constant, Issue, SpaceError, Spec, load, loads
from ...spaces.errors import hint
from ...storage.database import open_tables
from ...storage.wanted import read_wanted
from ..results.study import space_of
from .access import Body
from .problems import Problem, problem
from .service import Service
from .tokens import Caller

REMOTE = "remote"  # the objective of a space whose workers bring the code
FILE = "<space>"  # what a submitted space is called in messages
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def read(content: str | Mapping[str, Any]) -> Spec:
    """The spec of a submitted text or object. Raises `SpaceError` with every issue. Opens no file."""
    if isinstance(content, str):
        return loads(content, FILE, preset_values)
    return load(content, preset_values)


class CodeBody(Body):
    """What a space may come with."""

    bundle: str | None = Field(None, description="The SHA-256 of the code that was sent before.")
    code_of: str | None = Field(None, description="A study whose code it runs with, where no bundle came.")


@dataclass(frozen=True)
class Code:
    """The code of one's own that a space runs with."""

    folder: Path | None = None
    bundle: str | None = None  # its SHA-256, where it was sent


def accepted(spec: Spec, body: CodeBody, service: Service, caller: Caller) -> tuple[Spec, Code]:
    """A submitted space as it is searched here, and its code.

    Raises `Problem` where it names what its submitter may not use, `SpaceError` where it cannot be.
    """
    code = _code(body, service, caller)
    allowed(spec, caller, service.settings.roots, code.folder)
    return spec if code.folder is None else spec.in_folder(code.folder), code


def _code(body: CodeBody, service: Service, caller: Caller) -> Code:
    """The code that came before a space, or is a study's. Raises `Problem` where it may not, or did not."""
    bundles = service.bundles
    if body.bundle is not None:
        if "code" not in caller.scopes:
            raise problem("scope-missing", 'a bundle needs the scope "code"', needs="code")
        if not bundles.has(body.bundle):
            raise problem("no-such-bundle", f"there is no bundle {body.bundle}; send it first")
        return Code(bundles.path(body.bundle), body.bundle)
    if body.code_of is None or "code" not in caller.scopes:
        return Code()  # a space of code of its own is refused then
    if not caller.may_see(body.code_of):
        raise problem("no-such-study", "there is no such study among those of this token")
    wanted = read_wanted(open_tables(service.workspace.url), body.code_of)
    if wanted is not None and wanted.bundle is not None and bundles.has(wanted.bundle):
        return Code(bundles.path(wanted.bundle), wanted.bundle)
    folder = space_of(service.workspace, body.code_of).folder
    if folder is not None and not Path(folder).is_dir():
        raise problem("no-such-bundle", f'the code of "{body.code_of}" is gone: {folder}')
    return Code(None if folder is None else Path(folder))


def allowed(spec: Spec, caller: Caller, roots: Sequence[Path], bundle: Path | None = None) -> None:
    """Raise `Problem` where a space names what its submitter may not use, `SpaceError` where it cannot be.

    `bundle` is the folder of its code. Relative names are in it, and its driver works there; without one,
    files are named by their whole paths. Nothing outside the roots and that folder is looked at.
    """
    if spec.report_to:
        told = "is not accepted over HTTP: trackers write to accounts of the server's owner; leave it out"
        raise SpaceError([spec.issue("report_to", told)])
    info = ObjectiveInfo(spec.objective_words)
    if info.name == REMOTE:
        return
    within = [*(each.resolve() for each in roots), *([] if bundle is None else [bundle.resolve()])]
    if info.kind != "built_in":
        if "code" not in caller.scopes:
            raise _own_code(spec, info)
        refused = list(_code_outside(spec, info, within, bundle))
    else:
        if not info.is_built_in:
            known = hint(info.name, [*BUILT_IN, REMOTE])
            raise SpaceError([spec.issue("objective", f'there is no objective "{info.name}"; {known}')])
        _refuse_downloads(spec, info, caller)
        refused = list(_files_outside(spec, info, within, bundle))
    if refused:
        where = ", ".join(str(root) for root in roots) or "none"
        raise problem(
            "path-not-allowed",
            f"{'; '.join(f'{each.path}: {each.message}' for each in refused)} (the server's roots: {where})",
            issues=[each.to_json() for each in refused],
        )


def _own_code(spec: Spec, info: ObjectiveInfo) -> Problem:
    issue = spec.issue("objective", "is code of one's own")
    return problem(
        "scope-missing",
        f'the objective "{info.name[:200]}" is code of your own, which needs a token with the scope "code"; '
        f"with objective: {REMOTE} workers bring it",
        needs="code",
        issues=[issue.to_json()],
    )


def _code_outside(
    spec: Spec, info: ObjectiveInfo, within: Sequence[Path], bundle: Path | None
) -> Iterator[Issue]:
    """The file of a function that lies outside. What a command runs, a shell could run too."""
    if info.kind == "command":
        if not within:
            yield spec.issue("objective", "a command needs a bundle, or a root to work in")
        return
    library = library_of(info.name)
    source = (info.name if library is None else info.name.partition(":")[2]).rpartition(":")[0]
    if not source.endswith(".py"):
        if bundle is None:
            yield spec.issue("objective", f'the module "{source}" needs a bundle that has it')
    elif told := _outside(source, within, bundle):
        yield spec.issue("objective", told)


def _refuse_downloads(spec: Spec, info: ObjectiveInfo, caller: Caller) -> None:
    """Models are taken from this machine; to download others is for who may bring code."""
    downloads = any(value is False for _, value in _values(spec, "local_files_only"))
    if downloads and info.name == "hf_lora" and "code" not in caller.scopes:
        issue = spec.issue("parameters.local_files_only", "false downloads models")
        raise problem(
            "scope-missing",
            f'{issue.path}: {issue.message}, which needs a token with the scope "code"',
            needs="code",
            issues=[issue.to_json()],
        )


def _files_outside(
    spec: Spec, info: ObjectiveInfo, within: Sequence[Path], bundle: Path | None
) -> Iterator[Issue]:
    """The files and models that a built-in objective would read outside."""
    config = info.parameters
    for name in (*config.files, *config.models, *(["model"] if info.name == "hf_lora" else [])):
        if name in spec.parameters and not isinstance(spec.parameters[name], Constant | Choice):
            yield spec.issue(f"parameters.{name}", "names a file, so it needs fixed values")
        for path, value in _values(spec, name):
            if not isinstance(value, str) or info.is_bundled(name, value):
                continue
            if name == "model" and HUB_ID.fullmatch(value) and _missing(value, bundle):
                continue  # of this machine's cache
            if told := _outside(value, within, bundle):
                yield spec.issue(path, told)


def _values(spec: Spec, name: str) -> Iterator[tuple[str, Any]]:
    """The values that a parameter can have, with their paths in the space."""
    parameter = spec.parameters.get(name)
    if isinstance(parameter, Constant):
        yield f"parameters.{name}", parameter.value
    elif isinstance(parameter, Choice):
        for value in parameter.choices:
            yield f"parameters.{name}", value
    if name in (spec.baseline or {}):
        yield f"baseline.{name}", (spec.baseline or {})[name]


def _missing(value: str, bundle: Path | None) -> bool:
    return bundle is None or not (bundle / value).exists()


def _outside(value: str, within: Sequence[Path], bundle: Path | None) -> str | None:
    """Why a file may not be read; None where it may."""
    try:
        path = Path(value)
        if value.startswith("~"):
            return f"{value!r} depends on whose home it is; write the whole path"
        if not path.is_absolute():
            if bundle is None:
                return f"{value!r} is relative, and no bundle came with the space; write the whole path"
            path = bundle / path
        found = path.resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL, a circle of links
        return f"{value!r} is no path"
    if not any(found.is_relative_to(root) for root in within):
        return f"{value!r} is outside what submitted spaces may read"
    if bundle is not None and found.is_relative_to(bundle.resolve()) and not found.exists():
        return f"{value!r} is not in the bundle"
    return None
