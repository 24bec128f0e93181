"""Rows of every kind of file, whose faults are told with file and line; without transformers."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.objectives.hf_lora import rows as hf_rows
from hpsearch.objectives.hf_lora.config import Config
from hpsearch.objectives.hf_lora.files import fingerprint, longest_row
from hpsearch.objectives.hf_lora.rows import Row, ordered_classes, split_rows
from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.trainer.errors import ConfigError, DataError

LABELLED = {"task": "sequence_classification", "model": "any"}


def config(file: Path | str, **more: Any) -> Config:
    return Config.from_params({"train_file": str(file), "max_steps": 1} | more)


def rows(file: Path, **more: Any) -> list[Row]:
    train, held = split_rows(config(file, **more), None)
    return sorted(train + held, key=lambda row: int(row.place.rpartition(":")[2]))


PAIRS = [{"prompt": f"question {n}", "completion": f"answer {n}"} for n in range(20)]


@pytest.mark.parametrize(
    ("name", "text", "first"),
    [
        ("a.jsonl", "\n".join(map(json.dumps, PAIRS)), 1),
        ("a.json", json.dumps(PAIRS, indent=1), 2),
        (
            "a.csv",
            "\n".join(["prompt,completion", *(f'{p["prompt"]},"{p["completion"]}"' for p in PAIRS)]),
            2,
        ),
        (
            "a.TSV",
            "\n".join(["prompt\tcompletion", *(f"{p['prompt']}\t{p['completion']}" for p in PAIRS)]),
            2,
        ),
    ],
)
def test_every_kind_of_file_holds_the_same_rows(name: str, text: str, first: int, tmp_path: Path) -> None:
    plain, packed = tmp_path / name, tmp_path / f"{name}.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for file in (plain, packed):
        found = rows(file)
        assert [(row.prompt, row.text) for row in found] == [(p["prompt"], p["completion"]) for p in PAIRS]
        assert found[0].place == f"{file}:{first}"


def test_the_layouts_of_texts_are_known_here_too(tmp_path: Path) -> None:
    """In a folder each file by its name; what is given stands before what is to be learned."""
    asked = [{"instruction": f"ask {n}", "input": "", "output": f"say {n}"} for n in range(9)]
    talks = [
        {"messages": [{"role": "user", "content": f"{n}"}, {"role": "it", "content": "yes"}]}
        for n in range(9)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (tmp_path / "b.json").write_text(json.dumps(talks))
    (tmp_path / "c.txt").write_text("a text\n" * 20)
    train, held = split_rows(config(tmp_path), None)
    found = {(row.prompt, row.text) for row in train + held}
    assert ("### Instruction:\nask 3\n\n### Response:\n", "say 3") in found
    assert (None, "user: 3\nit: yes") in found and any("a text" in text for _, text in found)


def test_the_fields_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(json.dumps({"q": f"{n}", "a": f"A{n}", "kind": n % 2}) for n in range(20)))
    assert rows(file, prompt_field="q", completion_field="a")[3] == Row(f"{file}:4", "A3", "3")
    assert rows(file, text_field="a", label_field="kind", **LABELLED)[3] == Row(f"{file}:4", "A3", label="1")


@pytest.mark.parametrize(
    ("name", "text", "more", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n\n{"text": 1}', {}, ':3: found the fields "text" (number), needs text in'),
        ("a.jsonl", '{"text": "a"}\n{"text": ', {}, ":2: not valid JSON (Expecting value"),
        ("a.jsonl", '{"text": "\\ud800"}', {}, ":1: found an unpaired surrogate"),
        ("a.json", '{"text": "a"}', {}, ":1: not a list; needs [{...}, ...]"),
        ("a.json", '[{"text": "a"},\n\n {"txt": "b"}]', {}, ':3: found the fields "txt" (text)'),
        ("a.json", '[{"text": "a"},\n {"text": }]', {}, ":2: not valid JSON"),
        ("a.json", '[{"text": "a"}\n {"text": "b"}]', {}, ":2: found '{', needs , or ]"),
        ("a.json", '[{"text": "a"},\n {"text": "b"}]\n[{"text": "c"}]', {}, ":3: found '[' after the list"),
        ("a.csv", "text,label,,,label\na,b,,,c\n", LABELLED, ":1: found two columns 'label'"),
        ("a.csv", 'text,label\na,b\n"c\nd",e\nf\n', LABELLED, ":5: found 1 fields, needs 2: text, label"),
        ("a.csv", 'text\n"a', {}, ":2: unexpected end of data"),
        ("a.csv", "text,label\na,x\nb,\n", LABELLED, ':3: found the fields "text" (text), "label" (text), needs a class'),
        ("a.txt", "plain", LABELLED, "not a record"),
        ("a.jsonl", '{"text": "a", "label": true}', LABELLED, ":1: found the fields"),
        ("a.jsonl", '{"text": "a"}', {"task": "seq2seq_lm", "model": "any"}, ":1: found the fields \"text\" (text), needs a prompt"),
        ("a.jsonl", '{"a": "b"}', {"prompt_field": "a", "completion_field": "c"}, ':1: found the fields "a" (text), needs text in "c" (completion_field)'),
        ("a.jsonl", '{"text": "a"}\n{"text": " "}', {}, "leave none to"),
    ],
)  # fmt: skip
def test_an_invalid_row_is_refused_with_its_line(
    name: str, text: str, more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(DataError) as told:
        split_rows(config(file, **({"validation_split": 0.5} | more)), None)
    assert str(told.value).startswith(str(file)) and message in str(told.value)


def test_which_rows_are_validated_on_follows_from_the_seed_of_the_split_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": f"text {n % 90}", "label": "ab"[n % 10 == 0]}) for n in range(100)]
    file.write_text("\n".join(lines))
    (train, held), (_, again), (_, other) = (
        split_rows(config(file, validation_split=0.2, **LABELLED, **more), None)
        for more in ({}, {"seed": 5, "learning_rate": 1.0}, {"split_seed": 1})
    )
    assert held == again != other
    assert {row.fingerprint for row in train}.isdisjoint(row.fingerprint for row in held)
    assert [sum(row.label == label for row in held) for label in "ab"] == [18, 2]


def test_validation_rows_are_not_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, PAIRS[:5])))
    train, held = split_rows(config(tmp_path / "a.jsonl", validation_file=str(tmp_path / "b.jsonl")), None)
    assert (len(train), len(held)) == (15, 5)
    assert "left out 5 rows that are in validation_file too" in capsys.readouterr().err


def test_one_long_text_is_cut_for_the_validation(tmp_path: Path) -> None:
    text = "".join(f"line {n}, déjà vu\n" for n in range(500))
    (tmp_path / "a.txt").write_text(text)
    (train,), (held,) = split_rows(config(tmp_path / "a.txt"), None)
    assert (
        text.startswith(train.text) and text.endswith(held.text) and 0.08 < len(held.text) / len(text) < 0.12
    )


@given(
    items=st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none())),
    indent=st.none() | st.integers(0, 3),
)
def test_a_list_of_json_is_read_as_json_reads_it(items: list[Any], indent: int | None) -> None:
    text = json.dumps(items, indent=indent, ensure_ascii=False)
    found = list(hf_rows._list_items(Path("a.json"), text))
    assert [item for _, item in found] == items
    for place, item in found if indent else []:
        assert text.split("\n")[int(place.rpartition(":")[2]) - 1].strip().startswith("{"), item


def test_classes_are_in_their_order() -> None:
    assert ordered_classes(["10", "9", "-1", "9"]) == ("-1", "9", "10")
    assert ordered_classes(["b", "10", "a"]) == ("10", "a", "b")
    assert ordered_classes(["1", "01", "001", "0"]) == ("0", "001", "01", "1"), "in every process"
    for no_number in ("²", "--1", "9" * 5000):
        assert ordered_classes([no_number, "1"]) == tuple(sorted(["1", no_number]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"task": "seq2seq_lm"}, "model: the default model is for causal_lm; name one for seq2seq_lm"),
        (
            LABELLED,
            "train_file: 'english' is text; sequence_classification needs rows with a text and a label",
        ),
        ({"prompt_field": "q"}, "prompt_field, completion_field: found one of them"),
        (
            {"lora_alpha": 8.0, "alpha_over_r": 4.0},
            "lora_alpha: found 8.0, but alpha_over_r 4.0 * lora_r 8 is 32.0",
        ),
        ({"optimizer": "muon"}, "optimizer: found 'muon', allowed: adamw, sgd, adafactor, lion"),
        ({"lora_rank": 8}, "lora_rank: unknown to the objective 'hf_lora'"),
        ({"target_modules": []}, "target_modules: found an empty list"),
        ({"max_steps": None}, "max_samples, max_steps, num_train_epochs: found none of them"),
    ],
)
def test_contradictions_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        Config.from_params({"max_steps": 1} | params)
    assert message in str(told.value)


def test_parameters_that_a_task_does_not_use_are_idle() -> None:
    params = {"label_field": "kind", "split_seed": 1, "validation_file": "b.jsonl", "momentum": 0.5}
    assert set(ObjectiveInfo("hf_lora").idle_parameters(params)) == {"label_field", "split_seed", "momentum"}


def test_a_models_files_are_looked_at_before_anything_begins(tmp_path: Path) -> None:
    """By `hpsearch validate` already, and without loading anything."""
    params = {"max_steps": 1, "model": str(tmp_path)}

    def problems(**more: Any) -> list[str]:
        return [
            f"{name}: {told}" for name, told in ObjectiveInfo("hf_lora").parameter_problems(params | more)
        ]

    assert problems() == [
        f"model: {tmp_path} has no config.json: it is not the folder of a transformers model"
    ]
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(b"1" * 100)
    assert "config.json cannot be read" in problems()[0]
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert "config.json cannot be read: maximum recursion" in problems()[0]
    (tmp_path / "config.json").write_text("[]")
    assert "config.json holds list, needs an object" in problems()[0]
    assert "File name too long" in problems(model="x" * 300)[0]
    assert "cannot be read: Could not determine home" in problems(model="~nobody of that name")[0]
    (tmp_path / "config.json").write_text('{"n_positions": 64}')
    assert problems() == ["max_length: found 128, but the model was made for 64"]
    assert problems(max_length=64) == []
    assert problems(model=None, max_length=129) == ["max_length: found 129, but the model was made for 128"]
    assert "config.json is a file; name its folder" in problems(model=str(tmp_path / "config.json"))[0]
    before = fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"1" * 99 + b"2")
    assert fingerprint(tmp_path) != before
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "lost.safetensors").symlink_to("nowhere")
    assert fingerprint(tmp_path) != before, "and it ends"
    (tmp_path / "model.safetensors").unlink()
    assert "has no *.safetensors" in problems(max_length=64)[0]


def test_relative_places_have_no_end() -> None:
    assert longest_row({"n_positions": 512, "relative_attention_num_buckets": 32}) is None
    assert longest_row({"text_config": {"max_position_embeddings": 4096}}) == 4096
