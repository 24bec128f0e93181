"""Runs whose blocks torch has compiled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.model.compiled import _compiling
from hpsearch.trainer.runs.run import GptRun

STEPS = 4
OF_TORCH = [  # which it hides, or would from its own users
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "ignore:.*torch.autograd.function.Function.* should not be instantiated:DeprecationWarning",
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",
]


@pytest.fixture(scope="module", autouse=True)
def own_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is found that was compiled in an earlier process.

    Torch tries by its compiler each set of instructions that the processor has, and takes the first: here it
    tries only that one.
    """
    from torch._inductor import cpu_vec_isa as sets

    own = sets.x86_isa_checker()
    tried = [each for each in sets.supported_vec_isa_list if set(str(each).split()) <= set(own)][:1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        if tried:
            patch.setattr(sets, "supported_vec_isa_list", tried)
        yield


def trained(config: TrainConfig) -> tuple[list[float], GptRun]:
    """What each step's loss was, and then the validation's."""
    run = GptRun(config)
    losses = []
    for _ in range(STEPS):
        before = run.loss_total.item()
        run.train()
        losses.append(run.loss_total.item() - before)
    return [*losses, run.evaluate()[0]], run


@pytest.mark.slow
@pytest.mark.filterwarnings(*OF_TORCH)
def test_compiled_adapters_compute_what_they_do_and_are_compiled_once(tiny_lora: LoraConfig) -> None:
    """And a run is not charged for the compiler's time."""
    config = dataclasses.replace(tiny_lora, use_dora=True, label_smoothing_factor=0.1, learning_rate=0.03)
    config = dataclasses.replace(config, target_modules="qkv")
    eager, _ = trained(config)
    assert max(eager) - min(eager) > 0.01, "it learns"
    compiled = dataclasses.replace(config, torch_compile=True)
    spent, began = _compiling.seconds, time.perf_counter()
    losses, run = trained(compiled)
    assert losses == pytest.approx(eager, abs=1e-5)
    compiling = _compiling.seconds - spent
    assert compiling > 0
    assert run.train_seconds <= time.perf_counter() - began - compiling

    spent = _compiling.seconds
    assert trained(compiled)[0] == losses, "bit for bit"
    other_rate = dataclasses.replace(compiled, seed=1, learning_rate=1e-3, lora_r=3, lora_dropout=0.5)
    assert trained(other_rate)[0] != losses
    assert _compiling.seconds == spent, "of the same shape, and so nothing was compiled"


@pytest.mark.slow
@pytest.mark.filterwarnings(*OF_TORCH)
def test_compiled_blocks_of_a_whole_model_compute_what_they_do(tiny_pretrain: PretrainConfig) -> None:
    """Computed twice too, with the same dropout."""
    eager, _ = trained(tiny_pretrain)
    twice = dataclasses.replace(tiny_pretrain, torch_compile=True, gradient_checkpointing=True)
    spent = _compiling.seconds
    losses, _ = trained(twice)
    assert losses == pytest.approx(eager, abs=1e-5) and _compiling.seconds > spent
    assert trained(dataclasses.replace(twice, gradient_checkpointing=False))[0] == losses, "bit for bit"
