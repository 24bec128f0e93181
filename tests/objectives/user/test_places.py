"""Where the files of a command are: in the folder of the space, else in the current one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpsearch.objectives.user.macros import expand
from hpsearch.objectives.user.places import in_both, missing, missing_file, placed, source_of


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder of a space, and the current one."""
    space, here = tmp_path / "space", tmp_path / "here"
    space.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    return space, here


def test_the_folder_of_the_space_comes_first(folders: tuple[Path, Path]) -> None:
    space, here = folders
    (here / "train.py").write_text("1")
    command = ["python", "-u", "train.py", "--data=train.py", "train.py"]
    assert expand(command, {}, {}, str(space))[1:] == command[1:]
    (space / "train.py").write_text("2")
    assert expand(command, {}, {}, str(space))[1:] == ["-u", str(space / "train.py"), *command[3:]]
    assert expand(command, {}, {}, str(here))[1:] == command[1:]
    [(place, told)] = in_both(command, str(space))
    assert place == 2 and f"{space}/train.py, which is used" in told
    (here / "train.py").write_text("2")
    assert not list(in_both(command, str(space))), "the same text"


def test_a_link_to_the_same_folder_is_the_same_folder(folders: tuple[Path, Path], tmp_path: Path) -> None:
    _, here = folders
    (here / "train.py").touch()
    (tmp_path / "link").symlink_to(here)
    assert placed("train.py", str(tmp_path / "link")) == Path("train.py")


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["python", "train.py"], 1),
        (["python3.11", "-X", "dev", "train.py", "b.py"], 3),
        (["${interpreter}", "train.py"], 1),
        (["${env}", "python", "train.py"], 2),
        (["torchrun", "--nproc-per-node", "2", "train.py"], 3),
        (["accelerate", "launch", "--config_file", "a.yaml", "train.py"], 4),
        (["uv", "run", "train.py"], 2),
        (["bash", "train.sh"], 1),
        (["./train.sh"], 0),
        (["Rscript", "train.R"], 1),
        (["nice", "-n", "5", "python", "train.py"], 4),
        (["python", "-c", "print()", "train.py"], None),
        (["python", "-m", "pkg", "train.py"], None),
        (["docker", "run", "image", "python", "train.py"], None),
        (["bash", "-c", "python train.py"], None),
        (["mine", "train.py"], None),
        (["python", "${script}"], None),
    ],
)
def test_the_script_of_a_command(folders: tuple[Path, Path], command: list[str], script: int | None) -> None:
    space, _ = folders
    for name in ("train.py", "train.sh", "train.R", "b.py"):
        (space / name).touch()
    words = expand(command, {"script": "train.py"}, {}, str(space))
    moved = [place for place, word in enumerate(words) if word.startswith(str(space))]
    assert moved == ([] if script is None else [script])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("python trian.py", 'no file "trian.py" in SPACE or HERE, did you mean train.py?'),
        ("python sub.py", 'no file "sub.py" in SPACE or HERE, did you mean inner/sub.py?'),
        ("python inner", None),
        ("bash inner.sh", '"inner.sh" is a folder'),
        ("python /none/x.py", 'no file "/none/x.py" in /none'),
        ("python ~nobody/x.py", 'no file "~nobody/x.py" in'),
        ("./run", 'no file "./run" in SPACE or HERE'),
        ("pyhton train.py", 'no program "pyhton" on the PATH, did you mean '),
        ("run.sh", 'no program "run.sh" on the PATH, did you mean ./run.sh?'),
        ("python -m pkg.mod", None),
        ("python -m pkg.mood", 'no module "pkg.mood": pkg is in HERE/pkg'),
        ("python -m pgk", 'no module "pgk" in HERE or installed, did you mean "pkg"?'),
        ("python -m pkg", "a package without a __main__.py"),
        ("python -m beside", "it is in SPACE: start the search there, or write beside.py"),
        ("python -m json.tool", None),
        ("python -m torch.distributed.run x.py", None),
        ("python train.py", None),
        ("ssh host python none.py", None),
        ("python ${x}.py", None),
        ("${x} none.py", None),
        ("true none.py", None),
        ("bash -c 'python none.py'", None),
    ],
)
def test_what_is_missing_is_told(folders: tuple[Path, Path], command: str, told: str | None) -> None:
    space, here = folders
    for file in (space / "train.py", space / "beside.py", space / "run.sh", here / "inner" / "sub.py"):
        file.parent.mkdir(exist_ok=True)
        file.touch(0o755)
    (here / "inner.sh").mkdir()
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").write_text("raise SystemExit('imported')")
    (here / "pkg" / "mod.py").touch()
    import shlex

    words = shlex.split(command) if "'" in command else command.split()
    if command.startswith("ssh") and not os.access("/usr/bin/ssh", os.X_OK):
        words[0] = "docker" if os.access("/usr/bin/docker", os.X_OK) else "true"
    found = [problem for _, problem in missing(words, str(space))]
    if told is None:
        assert found == []
    else:
        assert len(found) == 1
        assert told.replace("SPACE", str(space)).replace("HERE", str(here)) in found[0]


def test_a_configuration_file_is_looked_up_alike(folders: tuple[Path, Path]) -> None:
    space, here = folders
    (space / "c.yaml").write_text("a: 1")
    assert missing_file("c.yaml", str(space)) is None
    assert missing_file("c.yaml", None) == f'there is no file "c.yaml" in {here}'
    assert "did you mean c.yaml?" in str(missing_file("d.yaml", str(space)))
    assert missing_file("\0", str(space)) is not None and missing_file("x" * 999, str(space)) is not None
    [written] = expand(["${config:c.yaml}"], {"a": 2}, {"run": str(here)}, str(space))
    assert Path(written) == here / "trial.yaml"


def test_the_source_of_a_command(folders: tuple[Path, Path]) -> None:
    space, here = folders
    (space / "train.py").touch()
    (here / "mod.py").touch()
    assert source_of(["python", "train.py"], str(space)) == space / "train.py"
    assert source_of(["python", "-m", "mod"], str(space)) == here / "mod.py"
    assert source_of(["bash", "-c", "cd x; python 'train.py"], str(space)) is None
    assert source_of(["./train"], str(space)) is None
