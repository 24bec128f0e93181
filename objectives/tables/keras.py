"""The objective `keras`: a dense network of Keras, and the value of its metric on the validation rows.

The parameters have Keras's names and defaults. Numbers are scaled, gaps are filled with the median,
categories are one-hot encoded.

Every random draw is seeded by the epoch, and none uses a global generator. So a trial that was paused or
killed continues as if it had not been, on each backend of Keras.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...trainer.config.rules import Need, one_of, optional, real, switch, text, whole
from ...trainer.errors import ConfigError, DataError
from ...trainer.seeds import seed_of
from ..base import Trial
from .boosting import threads
from .columns import as_numbers, write
from .rounds import RoundParameters, Rounds, model_round
from .table import Metrics, Table

FILE, COLUMNS = "model.keras", "columns.skops"
BEST = "best.keras"  # with `patience`; training resumes from the other file
BACKENDS = ("torch", "tensorflow")
OPTIMIZERS = ("adam", "adamw", "nadam", "adamax", "sgd", "rmsprop", "adagrad", "adafactor", "lion")
ACTIVATIONS = ("relu", "gelu", "silu", "elu", "selu", "leaky_relu", "tanh", "sigmoid")
MIN_RELATIVE_SPREAD = 1e-5  # least deviation relative to the largest number: a hundred steps of float32
MIN_SPREAD = 1e-15  # least deviation: float32 can represent its square and the square of its inverse
VALIDATION_BATCH = 4096  # rows


@dataclass(frozen=True, kw_only=True)
class Config(RoundParameters):
    """The parameters of a dense network that are usually tuned."""

    objective: ClassVar[str] = "keras"
    length: ClassVar[str] = "epochs"
    measure: ClassVar[str] = "monitor"
    stops_after: ClassVar[str] = "patience"
    needs: ClassVar[Mapping[str, Need]] = {"momentum": one_of("optimizer", "sgd", "rmsprop")}
    metrics: ClassVar[Metrics] = Metrics(
        two=("val_binary_crossentropy", "val_accuracy", "val_auc"),
        more=("val_sparse_categorical_crossentropy", "val_accuracy"),
        numbers=(
            "val_mean_squared_error",
            "val_root_mean_squared_error",
            "val_mean_absolute_error",
            "val_r2_score",
        ),
        higher=("val_accuracy", "val_auc", "val_r2_score"),
    )

    layers: int = whole(2, "[1, inf)", "hidden layers")
    units: int = whole(64, "[1, inf)", "of each hidden layer")
    activation: str = text("relu", ACTIVATIONS, "of hidden units")
    batch_normalization: bool = switch("before each activation")
    dropout: float = real(0.0, "[0, 1)", "after each activation")
    l1: float = real(0.0, "[0, inf)", "on the kernels of hidden layers")
    l2: float = real(0.0, "[0, inf)", "on the kernels of hidden layers")
    optimizer: str = text("adam", OPTIMIZERS, "by its name in Keras")
    learning_rate: float | None = optional(float, "(0, inf)", "default: the optimizer's, 0.001 for adam")
    learning_rate_schedule: str = text("constant", ("constant", "cosine"), "cosine: to 0 at the last epoch")
    weight_decay: float | None = optional(float, "[0, inf)", "default: the optimizer's, 0.004 for adamw")
    momentum: float = real(0.0, "[0, 1)", "of sgd and rmsprop")
    clipnorm: float | None = optional(float, "(0, inf)", "largest gradient norm of a weight (default: any)")
    batch_size: int = whole(32, "[1, inf)", "rows of a step")
    class_weight: str | None = optional(str, "", "give rare classes more weight", ("balanced",))
    epochs: int = whole(30, "[1, inf)", "passes over the rows")
    monitor: str | None = optional(str, "", metrics.help)
    patience: int = whole(
        0, "[0, inf)", "stop after so many epochs without a better validation, and keep the best; 0: never"
    )
    backend: str | None = optional(str, "", "of Keras (default: KERAS_BACKEND, or torch)", BACKENDS)

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        missing = None if values["backend"] is None else _missing(values["backend"])
        return super()._contradictions(values) + ([f"backend: {missing}"] if missing else [])


def train(trial: Trial) -> float:
    """Train a trial. Returns the metric after the last epoch or the best one (`patience`)."""
    config = Config.of(trial)
    keras = _keras(config.backend)
    keras.utils.clear_session(free_memory=False)  # drops the networks of earlier trials
    table = config.table()
    metric = config.metric(table)
    columns = as_numbers(table).fit(table.x)
    _check_target(config, table)
    x, held = (columns.transform(rows).astype(np.float32) for rows in (table.x, table.validation_x))
    y, held_y = (rows.astype(np.float32).reshape(-1, 1) for rows in (table.y, table.validation_y))
    weights = _weights(config, table)

    def save(folder: Path) -> None:
        model.save(folder / FILE)
        if config.patience:
            best.save(folder / BEST)
        if not (folder / COLUMNS).exists():
            write(columns, folder / COLUMNS)

    rounds = config.rounds(trial, metric, save)
    if rounds.done:
        model = keras.models.load_model(trial.checkpoint / FILE)
        best = keras.models.load_model(trial.checkpoint / (BEST if config.patience else FILE))
    else:
        model = _network(keras, config, table, x.shape[1], metric)
        best = keras.models.clone_model(model)
    while rounds.goes_on:
        order = _epoch_order(model, rounds, len(x))
        model.fit(
            x[order],
            y[order],
            sample_weight=None if weights is None else weights[order],
            batch_size=config.batch_size,
            shuffle=False,  # `order` has shuffled the rows
            verbose=0,
        )
        metrics = model.evaluate(held, held_y, batch_size=VALIDATION_BATCH, verbose=0, return_dict=True)
        value = metrics[_name(metric)]
        if config.patience and rounds.improved_by(value):
            best.set_weights(model.get_weights())
        rounds.after(value)
    return rounds.value


def _check_target(config: Config, table: Table) -> None:
    """Raise `DataError` if the numbers to predict are not distinct in a network's float32.

    The errors would be 0 or infinite, whatever the network predicts.
    """
    if table.classes:
        return
    spread, largest = float(table.y.std()), float(np.abs(table.y).max())
    if spread and (spread < largest * MIN_RELATIVE_SPREAD or not MIN_SPREAD < spread < 1 / MIN_SPREAD):
        raise DataError(
            f"{config.data}: the numbers to predict are too close together for a network (the largest is "
            f"{largest:.3g}, their standard deviation {spread:.3g}); subtract a constant, or use another unit"
        )


def _name(metric: str) -> str:
    """The name of a metric in Keras, without the `val_` of its logs."""
    return metric.removeprefix("val_")


def _epoch_order(model: Any, rounds: Rounds, rows: int) -> NDArray[np.int64]:
    """Seed the dropouts for the next epoch, and draw the order of the rows."""
    rng = np.random.default_rng(rounds.seed)
    for layer in model.layers:
        if hasattr(layer, "seed_generator"):
            layer.seed_generator.state.assign([int(rng.integers(2**31)), 0])
    return rng.permutation(rows)


def _weights(config: Config, table: Table) -> NDArray[np.float32] | None:
    """The weight of each row. Raises `ConfigError` if there are no classes to balance."""
    if config.class_weight is None:
        return None
    if not table.classes:
        raise ConfigError(["class_weight: only for a target with classes"])
    counts = np.bincount(table.y)
    weights: NDArray[np.float32] = (len(table.y) / (len(counts) * counts))[table.y].astype(np.float32)
    return weights


def _network(keras: Any, config: Config, table: Table, width: int, metric: str) -> Any:
    """The compiled network for rows of `width` numbers; for a regression it predicts in the target's unit."""
    layers, seed = keras.layers, (seed_of("keras", config.seed, n) % 2**31 for n in itertools.count())
    penalty = keras.regularizers.L1L2(config.l1, config.l2) if config.l1 or config.l2 else None

    def dense(units: int, activation: str | None = None, **options: Any) -> Any:
        start = keras.initializers.GlorotUniform(next(seed))
        return layers.Dense(units, activation, kernel_initializer=start, **options)

    inputs = hidden = keras.Input((width,))
    for _ in range(config.layers):
        hidden = dense(config.units, kernel_regularizer=penalty)(hidden)
        if config.batch_normalization:
            hidden = layers.BatchNormalization()(hidden)
        hidden = layers.Activation(config.activation)(hidden)
        if config.dropout:
            hidden = layers.Dropout(config.dropout, seed=next(seed))(hidden)
    scale = 1.0
    if table.classes:
        outputs = table.one_of(dense(1, "sigmoid"), dense(len(table.classes), "softmax"), None)(hidden)
    else:
        scale = float(table.y.std()) or 1.0
        outputs = layers.Rescaling(scale, offset=float(table.y.mean()))(dense(1)(hidden))
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=_optimizer(keras, config, len(table.y)),
        loss=table.one_of("binary_crossentropy", "sparse_categorical_crossentropy", "mean_squared_error"),
        loss_weights=[1 / scale**2],  # makes rates and penalties independent of the target's unit
        metrics=[_name(metric)],
        jit_compile=False,  # by default TensorFlow compiles it, for seconds
    )
    return model


def _optimizer(keras: Any, config: Config, rows: int) -> Any:
    kind = type(keras.optimizers.get(config.optimizer))
    names = ("learning_rate", "weight_decay", "clipnorm")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    if config.momentum and Config.needs["momentum"].met({"optimizer": config.optimizer}):
        given["momentum"] = config.momentum
    if config.learning_rate_schedule == "cosine":
        peak = float(keras.ops.convert_to_numpy(kind(**given).learning_rate))
        steps = config.epochs * math.ceil(rows / config.batch_size)
        given["learning_rate"] = keras.optimizers.schedules.CosineDecay(peak, steps)
    return kind(**given)


def _missing(backend: str) -> str | None:
    """The message if a backend is not installed; else None."""
    return None if find_spec(backend) else f"{backend} is not installed: pip install 'hpsearch[{backend}]'"


def _keras(backend: str | None) -> Any:
    """Import Keras with a backend, which a process can choose only once. Raises `ConfigError`."""
    wanted = backend or os.environ.get("KERAS_BACKEND") or BACKENDS[0]
    if wanted not in BACKENDS:
        raise ConfigError([f"backend: KERAS_BACKEND is {wanted!r}, allowed: {', '.join(BACKENDS)}"])
    if missing := _missing(wanted):
        raise ConfigError([f"backend: {missing}"])
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = wanted
        if wanted == "tensorflow":
            _prepare_tensorflow()
    import keras

    if (actual := keras.backend.backend()) != wanted:
        raise ConfigError([f"backend: found {wanted!r}, but this process already uses Keras on {actual}"])
    return keras


def _prepare_tensorflow() -> None:
    """Limit TensorFlow to its share of the cores and of a GPU, and make it deterministic."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads())
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    tensorflow.config.experimental.enable_op_determinism()
    for device in tensorflow.config.list_physical_devices("GPU"):
        tensorflow.config.experimental.set_memory_growth(device, True)


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the network, for `keras.models.load_model`, and the transformer of its columns."""
    model_round(checkpoint)
    best = checkpoint / BEST
    shutil.copyfile(best if best.exists() else checkpoint / FILE, folder / FILE)
    shutil.copyfile(checkpoint / COLUMNS, folder / COLUMNS)
    return [folder / FILE, folder / COLUMNS]
