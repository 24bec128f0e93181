"""The space that these tests read."""

from __future__ import annotations

import pytest

from hpsearch.spaces import Spec, loads

LORA = """\
version: 1
name: lora
objective: lora
metric: val_loss
goal: minimize
parameters:
  learning_rate: {min: 1e-4, max: 3e-2, log: true, prior: {at: 2e-3, confidence: medium}}
  lora_r: {min: 2, max: 32, factor: 2}
  alpha_over_r: [1, 2, 4]
  lora_alpha: {expr: "alpha_over_r * lora_r"}
  lora_dropout: {min: 0.0, max: 0.2, step: 0.05}
  batch_size: [4, 8, 16]
  lr_scheduler: [constant, linear, cosine]
  warmup_ratio: {min: 0, max: 0.2, when: {lr_scheduler: [linear, cosine]}}
  max_steps: 400
  max_length: {value: 1024}
  model.width: [128, 256]
  model.targets: {choices: [[q, v], [q, k, v, o], all]}
constraints: ["batch_size * max_length <= 16384", "lora_alpha <= 64"]
baseline: {learning_rate: 1e-3, lora_r: 8}
search: {sampler: tpe, seed: 3, n_startup_trials: 10}
early_stopping: {method: hyperband, min: 25, max: 400, eta: 3}
budget: {trials: 40, time: 30m, samples: 100000, target: 1.7}
execution: {workers: 2, retries: 1, trial_timeout: 1h, keep: 3}
"""


@pytest.fixture(scope="module")
def text() -> str:
    return LORA


@pytest.fixture(scope="module")
def spec() -> Spec:
    return loads(LORA, "lora.yaml")
