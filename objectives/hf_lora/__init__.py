"""The objective `hf_lora`: adapters of a Hugging Face model, and the loss on rows that it has not seen.

| task | models | a row of the data | the loss is per |
|---|---|---|---|
| `causal_lm` | GPT-2, Llama, ... | text, or a prompt and its completion | learned token |
| `seq2seq_lm` | T5, ... | a prompt and its completion | token of the completion |
| `sequence_classification` | BERT, ... | text and its label | row; `accuracy` is reported too |

The parameters have the names of transformers and peft. The loop is hpsearch's own: schedules, optimizers,
checkpoints (of the adapters only) and reports are those of `lora`.
"""

from __future__ import annotations

import gc
from pathlib import Path

from ..base import Trial
from .config import Config

__all__ = ["Config", "export", "problems_of_files", "train"]


def problems_of_files(config: Config) -> list[str]:
    """Problems with the model's files: none there, or rows longer than it takes."""
    from .files import problems_of_files

    return problems_of_files(config)


def train(trial: Trial) -> float:
    """Train a trial. Returns the validation loss in nats, per token or per classified row."""
    from ...trainer.runs.base import train_to_end
    from ..runs import ranks_of_trial, steps_of
    from .run import HfRun

    gc.collect()  # frees the last trial's model: peft's models have reference cycles
    run = HfRun(Config.of(trial), ranks_of_trial())
    return train_to_end(run, steps_of(run, trial)).value


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write an adapter for `peft.PeftModel.from_pretrained`; with `merge` also a whole model in `merged/`."""
    from .peft_export import export

    return export(checkpoint, folder, merge=merge)
