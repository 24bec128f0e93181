"""A run that is stopped, anywhere and in any way, goes on as if it had not been."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpsearch.trainer import checkpoint as files
from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.training import OPTIMIZERS
from hpsearch.trainer.errors import CheckpointError
from hpsearch.trainer.optim.numerics import LossScale
from hpsearch.trainer.runs.base import FitResult, RunReport
from hpsearch.trainer.runs.run import fit

CLOCKED = {"tokens_per_second", "host_memory_mb"}


class Stopped(BaseException):
    """What a search throws through a run."""


def values(result: FitResult) -> list[Any]:
    return [
        (report.step, report.value, {k: v for k, v in report.metrics.items() if k not in CLOCKED})
        for report in result.reports
    ]


def stop_at(*steps: int) -> Any:
    def listen(report: RunReport) -> None:
        if report.step in steps:
            raise Stopped

    return listen


def resumed(config: TrainConfig, folder: Path, stops: list[int]) -> FitResult:
    for stop in stops:
        with pytest.raises(Stopped):
            fit(config, on_report=stop_at(stop), checkpoint=folder, resume_from=folder)
    return fit(config, on_report=stop_at(), checkpoint=folder, resume_from=folder)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stops=st.lists(st.sampled_from([8, 16, 24, 32, 40]), unique=True, max_size=3).map(sorted),
    kind=st.sampled_from(["lora", "pretrain"]),
    patience=st.sampled_from([0, 2]),
    parts=st.sampled_from([1, 2]),
)
def test_stopped_at_any_reports_the_curve_is_the_same(
    tiny_lora: LoraConfig,
    tiny_pretrain: PretrainConfig,
    tmp_path_factory: pytest.TempPathFactory,
    stops: list[int],
    kind: str,
    patience: int,
    parts: int,
) -> None:
    made: TrainConfig = tiny_lora if kind == "lora" else tiny_pretrain
    config = dataclasses.replace(
        made, early_stopping_patience=patience, gradient_accumulation_steps=parts, batch_size=4 // parts
    )
    whole = fit(config, on_report=stop_at())
    again = resumed(config, tmp_path_factory.mktemp("run"), stops)
    assert values(again) == values(whole)
    assert again.value == whole.value and again.stopped == whole.stopped
    for name, tensor in whole.weights.items():
        assert torch.equal(again.weights[name], tensor), name


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "adamw"])
def test_every_optimizer_resumes_exactly(
    tiny_lora: LoraConfig, tiny_pretrain: PretrainConfig, tmp_path: Path, optimizer: str
) -> None:
    kinds: tuple[TrainConfig, ...] = (tiny_lora, tiny_pretrain)
    for config in kinds:
        goes_on_exactly(dataclasses.replace(config, optimizer=optimizer), tmp_path / config.objective)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_every_precision_resumes_exactly(
    tiny_lora: LoraConfig,
    tiny_pretrain: PretrainConfig,
    tmp_path: Path,
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a loss scale that skips the first steps, and then grows and skips in turn."""
    monkeypatch.setattr(LossScale, "INITIAL_SCALE", 2.0**26)
    monkeypatch.setattr(LossScale, "STEPS_TO_DOUBLE", 3)
    kinds: tuple[TrainConfig, ...] = (tiny_lora, tiny_pretrain)
    for config in kinds:
        goes_on_exactly(dataclasses.replace(config, precision=precision), tmp_path / config.objective)


def goes_on_exactly(config: TrainConfig, folder: Path) -> None:
    whole = fit(config, on_report=stop_at())
    again = resumed(config, folder, [16, 40])
    assert values(again) == values(whole)
    for name, tensor in whole.weights.items():
        assert torch.equal(again.weights[name], tensor), name


def test_early_stopping_resumes_its_count(tiny_pretrain: PretrainConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(
        tiny_pretrain, early_stopping_patience=2, learning_rate=0.5, max_samples=400, lr_scheduler="constant"
    )
    whole = fit(config, on_report=stop_at())
    assert whole.stopped == "early" and whole.value < whole.reports[-1].value
    again = resumed(config, tmp_path, [whole.reports[-2].step])  # one validation after the best one
    assert values(again) == values(whole) and again.stopped == "early"
    assert again.value == whole.value
    for name, tensor in whole.weights.items():
        assert torch.equal(again.weights[name], tensor), name


def test_only_the_report_of_the_checkpoint_is_made_again(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(tiny_lora, on_report=stop_at(24), checkpoint=tmp_path)
    heard: list[RunReport] = []
    result = fit(tiny_lora, on_report=heard.append, checkpoint=tmp_path, resume_from=tmp_path)
    assert [report.step for report in heard] == [24, 32, 40, 48]
    assert [report.step for report in result.reports] == [8, 16, 24, 32, 40, 48]


def test_a_finished_run_answers_again_without_training(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    first = fit(tiny_lora, on_report=stop_at(), checkpoint=tmp_path)
    heard: list[RunReport] = []
    again = fit(tiny_lora, on_report=heard.append, checkpoint=tmp_path, resume_from=tmp_path)
    assert heard == [first.reports[-1]]
    assert again.value == first.value and again.seconds == first.seconds


def test_an_empty_folder_means_from_the_start(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.safetensors.partial").write_bytes(b"half a file")
    assert values(fit(tiny_lora, on_report=stop_at(), resume_from=tmp_path)) == values(
        fit(tiny_lora, on_report=stop_at())
    )


@pytest.mark.parametrize("change", [{"seed": 5}, {"learning_rate": 1e-5}, {"lora_r": 4}])
def test_another_configurations_checkpoint_is_refused(
    tiny_lora: LoraConfig, tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(Stopped):
        fit(tiny_lora, on_report=stop_at(8), checkpoint=tmp_path)
    with pytest.raises(
        CheckpointError, match=f"another run.*{next(iter(change))}: .* there, .* here.*; start over, or"
    ):
        fit(dataclasses.replace(tiny_lora, **change), on_report=stop_at(), resume_from=tmp_path)


def test_an_edited_text_is_refused(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(tiny_lora, on_report=stop_at(8), checkpoint=tmp_path)
    text = Path(tiny_lora.train_file)
    text.write_text(text.read_text() + "one line more\n")
    with pytest.raises(CheckpointError, match="corpus_sha256"):
        fit(tiny_lora, on_report=stop_at(), resume_from=tmp_path)


CHILD = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.runs.run import fit
params, folder, kill_at = json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
def listen(report):
    if report.step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
fit(LoraConfig.from_params(params), on_report=listen, checkpoint=folder, resume_from=folder)
"""


@pytest.mark.slow
def test_a_run_killed_at_a_report_resumes_exactly(
    tiny: dict[str, Any], base_file: Path, tmp_path: Path
) -> None:
    params = tiny | {"base": str(base_file), "lora_r": 2, "lora_dropout": 0.1}
    folder = tmp_path / "run"
    for place in (16, 32):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(params), str(folder), str(place)], check=False
        )
        assert done.returncode == -signal.SIGKILL
    config = LoraConfig.from_params(params)
    assert values(fit(config, on_report=stop_at(), resume_from=folder)) == values(
        fit(config, on_report=stop_at())
    )


SAVERS = """
import os, sys
from pathlib import Path
import torch
from hpsearch.trainer.checkpoint import save_checkpoint
for line in sys.stdin:  # a process for each, which need not load torch again
    if saver := os.fork():
        os.waitpid(saver, 0)
        print("ended", flush=True)
        continue
    for number in range(1, 10_000):
        save_checkpoint(Path(sys.argv[1]), {"a": torch.full((500_000,), float(number))}, {}, {}, {"number": number})
        if number == 1:
            print(os.getpid(), flush=True)
"""


@pytest.mark.slow
def test_a_file_is_whole_if_the_process_is_killed_while_saving(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    partial_seen = attempt = 0
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, "-c", SAVERS, str(tmp_path)], **pipes) as savers:
        assert savers.stdin is not None and savers.stdout is not None
        while attempt < 8 or (not partial_seen and attempt < 80):
            attempt += 1
            savers.stdin.write("\n")
            saver = int(savers.stdout.readline())
            time.sleep(0.003 * (attempt % 10))
            os.kill(saver, signal.SIGKILL)
            assert savers.stdout.readline() == "ended\n"
            partial_seen += (tmp_path / f".{files.CHECKPOINT}.partial").exists()
            found = files.resume_checkpoint(tmp_path)
            assert found is not None
            parts, state = found
            assert torch.equal(parts["weights"]["a"], torch.full((500_000,), float(state["number"])))
            assert "resuming" not in capfd.readouterr().err
    assert partial_seen, "no kill fell into a save: this test has shown nothing"
