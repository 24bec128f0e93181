"""What a submitted space may name, by scope, and where its files must lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.service.problems import Problem
from hpsearch.search.service.submission import allowed, read
from hpsearch.search.service.tokens import HAS, Caller
from hpsearch.spaces import SpaceError

LORA = {"learning_rate": {"min": 1e-4, "max": 1e-2}, "max_samples": 64}
X = {"x": {"min": 0.0, "max": 1.0}}


def space(objective: Any, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    metric = "val_loss" if objective in ("lora", "hf_lora") else "loss"
    return {
        "version": 1,
        "name": "s",
        "objective": objective,
        "metric": metric,
        "parameters": parameters,
    } | more


class Place:
    """A root, a bundle and a file outside of both, with links that lead out and in."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bundle, self.out = folder / "root", folder / "bundle", folder / "out"
        for each in (self.root, self.bundle, self.out):
            each.mkdir()
            (each / "text.txt").write_text("text")
        (self.bundle / "mine.py").write_text("def train(trial): ...")
        (self.root / "leak").symlink_to(self.out)
        (self.bundle / "leak.txt").symlink_to(self.out / "text.txt")
        (self.out / "way_in").symlink_to(self.root)

    def answer(self, content: dict[str, Any], scope: str, *, bundle: bool = False) -> str:
        """The type of the problem of a submission; "" where it is allowed."""
        caller = Caller("test", HAS[scope])  # type: ignore[index]
        try:
            allowed(read(content), caller, [self.root], self.bundle if bundle else None)
        except Problem as refused:
            assert refused.status == 403 and refused.more["issues"]
            return refused.type
        except SpaceError:
            return "space"
        return ""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_hpsearch_brings_may_be_searched_by_who_may_write(place: Place) -> None:
    for scope in ("write", "code", "admin"):
        assert place.answer(space("lora", LORA), scope) == ""
        assert place.answer(space("lora", LORA | {"train_file": "python"}), scope) == ""
        assert place.answer(space("lroa", LORA), scope) == "space"
        assert place.answer(space("lora", LORA, report_to="wandb"), scope) == "space"


CODE: list[Any] = [
    "mine.py:train",
    "mine:train",
    "optuna:mine.py:train",
    "optuna:mine.py:__main__",
    {"command": ["python", "mine.py", "${args}"]},
]


@pytest.mark.parametrize("objective", CODE, ids=str)
def test_code_needs_the_scope_code_and_a_place_that_was_submitted(place: Place, objective: Any) -> None:
    content = space(objective, X)
    assert place.answer(content, "write") == "scope-missing"
    assert place.answer(content, "write", bundle=True) == "scope-missing"
    assert place.answer(content, "code", bundle=True) == ""


def test_a_function_is_in_the_bundle_or_under_a_root(place: Place) -> None:
    for file in (place.root, place.bundle):
        (file / "more.py").write_text("")
    answers = {
        f"{place.root}/more.py:f": "", f"{place.out}/more.py:f": "path-not-allowed", "more.py:f": "",
        "../out/more.py:f": "path-not-allowed", "~/more.py:f": "path-not-allowed", "gone.py:f": "path-not-allowed",
        f"{place.root}/leak/more.py:f": "path-not-allowed",
    }  # fmt: skip
    for objective, answer in answers.items():
        assert place.answer(space(objective, X), "code", bundle=True) == answer, objective
    assert place.answer(space("more.py:f", X), "code") == "path-not-allowed", "relative to what?"


def test_files_resolve_inside_the_roots_or_the_bundle(place: Place, subtests: pytest.Subtests) -> None:
    inside = [f"{place.root}/text.txt", f"{place.root}/../root/text.txt", f"{place.out}/way_in/text.txt"]
    outside = [
        f"{place.out}/text.txt", f"{place.root}/leak/text.txt", f"{place.root}/../out/text.txt", "/etc/passwd",
        "~/text.txt", "~root/text.txt", "text.txt", "../text.txt", "/proc/self/environ", f"{place.root}x/text.txt",
    ]  # fmt: skip
    for answer, files in (("", inside), ("path-not-allowed", outside)):
        for file in files:
            with subtests.test(file):
                assert place.answer(space("lora", LORA | {"train_file": file}), "write") == answer
                choices = {"choices": ["python", file]}
                assert place.answer(space("lora", LORA | {"train_file": choices}), "admin") == answer
                assert place.answer(space("lora", LORA | {"base": file}), "write") == answer
                table = space("sklearn", {"data": file, "max_depth": {"min": 1, "max": 4}})
                assert place.answer(table, "write") == answer
    for file, answer in {
        "text.txt": "",
        "leak.txt": "path-not-allowed",
        "../out/text.txt": "path-not-allowed",
    }.items():
        content = space("lora", LORA | {"validation_file": file})
        assert place.answer(content, "write", bundle=True) == answer, file


def test_models_come_from_this_machine(place: Place) -> None:
    hub = LORA | {"model": "org/name"}
    assert place.answer(space("hf_lora", hub), "write") == ""
    assert place.answer(space("hf_lora", hub | {"local_files_only": False}), "code") == ""
    assert (
        place.answer(space("hf_lora", hub | {"local_files_only": [True, False]}), "write") == "scope-missing"
    )
    for model in ("../out", "/etc", "~/model", "./model", f"{place.root}/leak"):
        assert place.answer(space("hf_lora", LORA | {"model": model}), "code") == "path-not-allowed"


def test_no_file_is_opened_by_a_name_in_place_of_a_text(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("version: 1\nname: secret")
    with pytest.raises(SpaceError) as caught:
        read(str(file))
    assert "secret" not in str(caught.value)
