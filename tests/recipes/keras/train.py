"""A Keras script with its usual callbacks: CSVLogger and BackupAndRestore."""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.01)
parser.add_argument("--units", type=int, default=8)
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--log", default="training.csv")
parser.add_argument("--backup", default="backup")
args = parser.parse_args()

keras.utils.set_random_seed(args.seed)
x = np.random.default_rng(0).normal(size=(128, 3)).astype("float32")
y = np.sin(x.sum(1))
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(args.units, "tanh"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(args.learning_rate), loss="mse")
model.fit(
    x,
    y,
    validation_split=0.25,
    batch_size=32,
    shuffle=False,
    epochs=args.epochs,
    verbose=0,
    callbacks=[
        keras.callbacks.BackupAndRestore(args.backup, double_checkpoint=True, delete_checkpoint=False),
        keras.callbacks.CSVLogger(args.log, append=True),
    ],
)
