"""What a script was told beside its trial's parameters, and the options by which it heard of these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.user.config_file import copies, read_config
from hpsearch.objectives.user.macros import expand, flat
from hpsearch.objectives.user.script_settings import (
    ScriptSettings,
    changed_files,
    fixed_arguments,
    overriding_words,
    passed_options,
    settings_beside,
)

UNREADABLE = "it cannot be read now, so its other settings are unknown"
PARAMS = {"lr": 1e-4, "opt.name": "a b", "amp": True, "off": False, "seed": 42}


@pytest.mark.parametrize(
    "words",
    [
        ["${args}"],
        ["${args_no_hyphens}"],
        ["${args_no_boolean_flags}"],
        ["${args_json}"],
        ["--lr=${lr}", "--name", "${opt.name}"],
        ["-l", "${lr}", "${amp}", "--seed=${seed}"],
    ],
)
def test_options_are_the_words_that_the_script_got(words: list[str]) -> None:
    command = ["python", "t.py", "--fixed=1", "--out", "o", "${config:t.yaml}", *words]
    assert passed_options(command, PARAMS, 7) == expand(words, flat(PARAMS))


def test_a_script_without_options_hears_of_no_parameter() -> None:
    assert passed_options(["./t", "--config=${config:t.yaml}", "--x=1"], PARAMS, 7) is None
    assert passed_options(["./t", "${args_no_boolean_flags}"], {"off": False}, 7) == []
    assert passed_options(["./t", "--seed=${seed}", "${args}"], {"lr": 1}, 7) == ["--seed=7", "--lr=1"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--lr=1e-4", "--name=x=y", "--empty="], {"lr": 1e-4, "name": "x=y", "empty": ""}),
        (["--learning-rate", "3", "--on", "--last"], {"learning_rate": 3, "on": True, "last": True}),
        (["--modules", "q", "v", "--at", "no"], {"modules": ["q", "v"], "at": "no"}),
        (["trainer.epochs=3", "+model.r=8", "modules=[q, v]"],
         {"trainer.epochs": 3, "model.r": 8, "modules": ["q", "v"]}),
        (["--optim_args", "betas=0.9", "--max_steps", "-1", "--multirun", "lr=3"],
         {"optim_args": "betas=0.9", "max_steps": -1, "multirun": True, "lr": 3}),
        (["--config", "${config:t.yaml seed=$seed}", "--on"], {"on": True}),
        (["--a", "${lr}", "--b=${lr}", "--c", "${args}", "-d", "4", "e.py"], {"c": True}),
    ],
)  # fmt: skip
def test_the_words_of_a_command_have_names_and_values(words: list[str], values: dict[str, Any]) -> None:
    assert settings_beside(["python", "-m", "t", *words], Path()).layers == (values,)


def test_an_option_with_a_parameters_value_keeps_its_own_name() -> None:
    words = ["--lora_alpha", "${r}", "--name=${r}-${seed}", "--lr=${lr}", "--learning_rate=${lr}", "${args}"]
    told = settings_beside(["python", "t.py", *words], Path(), {"r": 8, "lr": 1e-4})
    assert told.layers == ({"lora_alpha": 8, "learning_rate": 1e-4},)


@pytest.mark.parametrize(
    ("string", "told", "unread", "flags", "also"),
    [
        ("python3 t.py --wd=0.05 --ratio 0.1 --lr=${lr} --r='${r}'", {"wd": 0.05, "ratio": 0.1}, [],
         ["--lr=0.5", "--r=8"], ["--wd=0.05", "--ratio", "0.1"]),
        ("cd x --y=1 && A=1 python t.py --name 'a b' --lr ${lr} >log --z", {"name": "a b", "z": True}, [],
         ["--lr", "0.5"], ["--name", "a b", "--z"]),
        ("python t.py --wd=$WD --n $(nproc) --lr=${lr} --o '$1' --p a $B", {"o": "$1"},
         ["--wd=$WD", "--n $(nproc)", "$B"], ["--lr=0.5"], None),
        ("A=1 python t.py --r=4", {"r": 4}, [], None, ["--r=4"]),
        ("python t.py --lr=${lr} <<E\n--x=1\nE", {}, ["python t.py --lr=${lr} <<E\n--x=1\nE"], None, None),
    ],
)  # fmt: skip
def test_settings_are_read_from_a_shells_string(
    string: str, told: dict[str, Any], unread: list[str], flags: list[str] | None, also: list[str] | None
) -> None:
    command = ["bash", "-lc", string]
    found = settings_beside(command, Path(), {"lr": 0.5, "x": 1})
    assert (found.layers, list(found.unread)) == ((told,), unread)
    if also is not None:
        assert passed_options(command, {"lr": 0.5, "r": 8}, 7) == flags
        assert fixed_arguments(command) == also


def test_fixed_arguments_are_those_without_parameters() -> None:
    words = ["--fixed=1", "--bf16", "--lr", "${lr}", "--at", "-1", "x", "--c", "${config:t.yaml}", "${args}"]
    assert fixed_arguments(["python", "t.py", *words]) == ["--fixed=1", "--bf16", "--at", "-1", "x"]
    assert fixed_arguments(["python", "t.py", "--seed=${seed}", "${args}"]) == []
    hydra = ["-e", "3", "-l", "${lr}", "--multirun", "lr=${lr}", "seed=1", "data.txt", "${args_no_hyphens}"]
    assert fixed_arguments(["uv", "run", "t.py", *hydra]) == ["-e", "3", "--multirun", "seed=1", "data.txt"]
    assert (
        fixed_arguments(["python", "-m", "t", "-e", "3"])
        == fixed_arguments(["trl", "sft", "-e", "3"])
        == ["-e", "3"]
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("${args} --lora_r=64", "--lora_r=64"),
        ("${args} --lora-r 64", "--lora-r"),
        ("--lora-r=${lora_r} --lora_r 64", "--lora_r"),
        ("--lora_r ${lora_r} --bf16 --lora_r=64", "--lora_r=64"),
        ("${args_no_hyphens} lora_r=64", "lora_r=64"),
        ("--lora_r=64 --config ${config:t.yaml}", "--lora_r=64"),
        ("--out=${run} --out=here", "--out=here"),
        ("--lora_r=64 ${args}", None),
        ("--out ${run} --lora_r ${lora_r} --lora_alpha=64", None),
        ("--config=${args_json} --lora_r=64", None),
        ("${args_json} --lora_r=64", None),
        ("--multirun lora_r=${lora_r} lr=1", None),
    ],
)
def test_a_word_that_sets_a_parameter_anew_overrides_it(words: str, found: str | None) -> None:
    command = ["python", "t.py", *words.split()]
    told = [word for place, word, _ in overriding_words(command, ["lora_r"]) if command[place] == word]
    assert told == ([] if found is None else [found])


def test_settings_come_from_the_copy_else_from_the_file(tmp_path: Path) -> None:
    source, command = tmp_path / "t.yaml", ["./t", f"${{config:{tmp_path}/t.yaml}}"]
    assert settings_beside(command, tmp_path / "0") == ScriptSettings(({},), {str(source): UNREADABLE})
    source.write_text("a: &a {r: 8}\nb: {<<: *a, lr: 1e-4}\nc: !mine [1]\n")
    assert settings_beside(command, tmp_path / "0").layers[0] == {
        "a": {"r": 8},
        "b": {"r": 8, "lr": 1e-4},
        "c": [1],
    }
    (tmp_path / "0").mkdir()
    expand(command, {"b.lr": 3e-4}, {"run": str(tmp_path / "0")})
    assert settings_beside(command, tmp_path / "0").layers[0]["b"] == {"r": 8, "lr": 3e-4}
    assert changed_files(command, {"b.lr": 3e-4}, tmp_path / "0") == []
    source.write_text("a: {r: 64}\n")
    assert changed_files(command, {"b.lr": 3e-4}, tmp_path / "0") == [str(source)]
    assert settings_beside(command, tmp_path / "0").layers[0]["b"]["r"] == 8, "what the trial had"


def test_every_configuration_file_has_a_copy_of_its_own(tmp_path: Path) -> None:
    files = [tmp_path / "a" / "t.yaml", tmp_path / "b" / "t.yaml", tmp_path / "t.json"]
    for number, file in enumerate(files):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"number": number}))
    command = [f"--{number}=${{config:{file}}}" for number, file in enumerate([*files, files[0]])]
    assert list(copies(command).values()) == ["trial.yaml", "trial-2.yaml", "trial.json"]
    words = expand(command, {"x": 1}, {"run": str(tmp_path)})
    found = [read_config(Path(word.partition("=")[2])) for word in words]
    assert found == [{"number": number, "x": 1} for number in (0, 1, 2, 0)]


def test_values_of_the_trial_itself_are_no_change(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("lr: 1\nout: here\n")
    command = [f"${{config:{tmp_path / 't.yaml'} seed=$seed out=$run/out}}", "--out=${run}/${lr}"]
    params, own = {"lr": 0.5}, {"seed": 7, "run": str(tmp_path)}
    expand(command, params, own)
    assert "seed: 7" in (tmp_path / "trial.yaml").read_text()
    assert changed_files(command, params, tmp_path) == []
    assert changed_files(command, {"lr": 0.7}, tmp_path, ["lr"]) == []
    assert len(changed_files(command, {"lr": 0.7}, tmp_path)) == 1
    assert passed_options(command, params, 7) == ["--out=${run}/0.5"]
    (tmp_path / "t.yaml").write_text("lr: 1\nout: here\nnew: 1\n")
    assert len(changed_files(command, params, tmp_path)) == 1
