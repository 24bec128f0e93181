"""A LightningCLI application: python main.py fit --config config.yaml."""

import time

import lightning.pytorch as pl
import torch
from lightning.pytorch.cli import LightningCLI


class Sines(pl.LightningDataModule):
    def __init__(self, batch_size: int = 32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str):
        x = torch.linspace(-3, 3, 256).unsqueeze(1)
        rows = torch.cat([x, torch.sin(x)], 1)
        self.train, self.held = rows[torch.arange(256) % 4 != 0], rows[torch.arange(256) % 4 == 0]

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.train, batch_size=self.batch_size)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(self.held, batch_size=64)


class Net(pl.LightningModule):
    def __init__(self, hidden: int = 16, lr: float = 1e-2, weight_decay: float = 0.0):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1))

    def loss(self, rows):
        return torch.nn.functional.mse_loss(self.layers(rows[:, :1]), rows[:, 1:])

    def training_step(self, rows, _):
        loss = self.loss(rows)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, rows, _):
        time.sleep(0.3)  # a real one takes longer
        self.log("val_loss", self.loss(rows), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=self.hparams.weight_decay)


if __name__ == "__main__":
    LightningCLI(Net, Sines, seed_everything_default=0)
