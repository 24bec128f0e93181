"""LoRA with Hugging Face's libraries, in a plain loop and with Trainer, for comparison in `trainer.py`.

Both train the same function as a `GptRun` of hpsearch, from the same weights on the same windows.
`tests/trainer/test_parity.py` compares the losses step by step. Needs transformers, peft and accelerate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peft
import torch
import transformers
from torch import Tensor

from hpsearch.objectives.hf_lora.base import LINEARS, gpt2
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.data.corpus import windows_at
from hpsearch.trainer.runs.run import GptRun

TABLE = 512  # steps whose windows are prepared for Trainer; it then repeats them


def peft_model(run: GptRun, activation: str = "gelu") -> Any:
    """GPT-2 of transformers with adapters of peft; it computes the same as the model of `run`.

    GPT-2's default activation is the tanh form of GELU (`gelu_new`), which is slower.
    """
    config, ours, shape = run.config, run.pack.model, run.pack.model.shape
    assert isinstance(config, LoraConfig)
    model = gpt2(shape, ours.state_dict(), activation=activation)
    model.config.use_cache = False
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=config.lora_r,
            lora_alpha=config.scale * config.lora_r,
            target_modules=["c_attn", "c_proj", "c_fc"],
            fan_in_fan_out=True,
        ),
    )
    begun = run.pack.by_layer(run.trained)
    for (block, name), layer in linears_of(model).items():
        with torch.no_grad():
            layer.lora_A["default"].weight.copy_(begun[f"blocks.{block}.{name}.lora_A"])
            layer.lora_B["default"].weight.copy_(begun[f"blocks.{block}.{name}.lora_B"].T)
    return adapted.to(run.device)


def linears_of(model: Any) -> dict[tuple[int, str], Any]:
    """The model's linear layers, by block and hpsearch's name."""
    blocks = enumerate(model.transformer.h)
    return {(number, mine): block.get_submodule(n) for number, block in blocks for n, mine in LINEARS.items()}


class Loop:
    """A plain training loop over a model of peft, with torch's fused AdamW."""

    def __init__(self, run: GptRun, activation: str = "gelu", precision: str = "fp32") -> None:
        config = run.config
        self.run, self.steps = run, 0
        self.model = peft_model(run, activation)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.cast = torch.autocast(run.device.type, torch.bfloat16, enabled=precision == "bf16")

    def train(self) -> Tensor:
        """Train one step; return its loss."""
        with self.cast:
            loss: Tensor = self.model(**batch(windows(self.run, self.steps))).loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.parameters, self.run.config.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return loss.detach()


def windows(run: GptRun, step: int) -> Tensor:
    """uint8 [rows, length + 1]: the windows that `run` trains on in this step."""
    return windows_at(run.tokens, run.places(step), run.config.max_length)


def batch(windows: Tensor) -> dict[str, Tensor]:
    """Windows [..., length + 1] in the format of a causal model of transformers.

    Given only `labels`, the model would shift them itself, and the last token of each row had no target.
    """
    wide = windows.long()
    targets = wide[..., 1:].contiguous()
    return {"input_ids": wide[..., :-1], "labels": targets, "shift_labels": targets}


class Text(torch.utils.data.Dataset[dict[str, Tensor]]):
    """The windows of the first `TABLE` steps of a run, in order."""

    def __init__(self, run: GptRun) -> None:
        self.rows = torch.cat([windows(run, step) for step in range(TABLE)]).cpu()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return batch(self.rows[index])


class Watch(transformers.TrainerCallback):  # type: ignore[misc]
    """Stops training after a step if `over` returns true."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self.over = over

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= self.over()


def trainer(
    run: GptRun, over: Callable[[], bool], folder: str, *, activation: str = "gelu", **options: Any
) -> Any:
    """Hugging Face's Trainer with its own optimizer, data loader and callbacks. It saves and logs nothing."""
    config = run.config
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=config.rows_per_step,
        max_steps=config.total_steps,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=run.device.type == "cpu",
        dataloader_pin_memory=run.device.type == "cuda",
        **options,
    )
    model = peft_model(run, activation)
    return transformers.Trainer(model, arguments, train_dataset=Text(run), callbacks=[Watch(over)])
