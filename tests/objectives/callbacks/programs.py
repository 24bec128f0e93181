"""Trainings with each library's own loop, checkpoints and callback: as functions, and as scripts.

`python programs.py LIBRARY FOLDER [OPTION=VALUE ...]` trains in FOLDER, and resumes from what it finds there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

EPOCHS, STEPS = 6, 4  # steps of an epoch
# A command is still in its loop when the search ends it.
PAUSE = 1.0 if "HPSEARCH_TRIAL" in os.environ else 0.0  # seconds an epoch


def rows() -> torch.Tensor:
    return torch.randn(STEPS * 8, 3, generator=torch.Generator().manual_seed(1))


def transformers(folder: Path, trial: Any = None, **options: Any) -> float:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    from hpsearch.objectives.callbacks import TrainerCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.layer(x) - x.sum(1, keepdim=True)).square().mean()}

    class Losing(Trainer):  # type: ignore[misc]
        def prediction_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            time.sleep(PAUSE / STEPS)
            with torch.no_grad():
                return model(**inputs)["loss"], None, None

    torch.manual_seed(0)
    when = options.pop("when", "epoch")
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=0.1,
        eval_strategy=when,
        eval_steps=STEPS,
        save_strategy=options.pop("save", "epoch"),
        save_steps=STEPS,
        logging_steps=STEPS,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    data = [{"x": row} for row in rows()]
    trainer = Losing(Model(), arguments, train_dataset=data, eval_dataset=data)
    trainer.add_callback(TrainerCallback(trial, **options))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
    return float(trainer.evaluate()["eval_loss"])


def lightning(folder: Path, trial: Any = None, **options: Any) -> float:
    from hpsearch.objectives.callbacks import LightningCallback

    if options.pop("package", "lightning") == "lightning":
        import lightning.pytorch as pl
    else:
        import pytorch_lightning as pl

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def _loss(self, batch: Any) -> torch.Tensor:
            loss: torch.Tensor = (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()
            return loss

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = self._loss(batch)
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            time.sleep(PAUSE / STEPS)
            self.log("val_loss", self._loss(batch))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 0.1)

    torch.manual_seed(0)
    checkpoints = pl.callbacks.ModelCheckpoint(folder, save_last=True)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[checkpoints, LightningCallback(trial, **options)],
        default_root_dir=folder,
        check_val_every_n_epoch=2 if options.get("monitor") == "loss" else 1,
    )
    train, held = (torch.utils.data.DataLoader[Any](rows(), batch_size=8) for _ in range(2))  # type: ignore[arg-type]
    last = folder / "last.ckpt"
    trainer.fit(Model(), train, held, ckpt_path=str(last) if last.exists() else None)
    return float(trainer.callback_metrics["val_loss"])


def keras(folder: Path, trial: Any = None, **options: Any) -> float:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    from hpsearch.objectives.callbacks import KerasCallback

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
    x = rows().numpy()
    y = x.sum(1)
    history = model.fit(
        x,
        y,
        batch_size=8,
        epochs=EPOCHS,
        verbose=0,
        validation_data=(x, y),
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: time.sleep(PAUSE)),
            KerasCallback(trial, **options),
            keras.callbacks.BackupAndRestore(str(folder / "backup")),
        ],
    )
    return float(history.history["val_loss"][-1])


if __name__ == "__main__":
    library, where, *given = sys.argv[1:]
    Path(where).mkdir(exist_ok=True)
    value = None
    try:
        value = globals()[library](Path(where), **dict(word.split("=") for word in given))
    finally:
        (Path(where) / "ended").write_text(str(value))
