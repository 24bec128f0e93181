"""Files of other tools, as their documents show them."""

WANDB = """\
program: train.py
name: my sweep
method: bayes
project: mine
metric:
  name: val_loss
  goal: minimize
  target: 0.1
run_cap: 20
early_terminate: {type: hyperband, min_iter: 3, eta: 2}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-2}
  batch-size: {values: [8, 16, 32]}
  epochs: {value: 27}
  model:
    parameters:
      width: {min: 16, max: 64}
      act: {values: [relu, gelu]}
command: ["${env}", python3, "${program}", "${args_no_boolean_flags}", --fast]
"""
NNI = """\
experimentName: mine
searchSpace:
  lr: {_type: loguniform, _value: [0.00001, 0.01]}
  layer:
    _type: choice
    _value:
      - _name: conv
        size: {_type: choice, _value: [3, 5]}
        act: {_type: choice, _value: [relu, gelu]}
      - _name: pool
        act: {_type: choice, _value: [relu, gelu]}
      - _name: none
trialCommand: python3 train.py --data 'a b'
trialConcurrency: 2
trialGpuNumber: 0
maxTrialNumber: 40
maxExperimentDuration: 30m
maxTrialDuration: 1h
tuner: {name: TPE, classArgs: {optimize_mode: maximize, seed: 3}}
assessor: {name: Medianstop, classArgs: {optimize_mode: maximize, start_step: 3}}
trainingService: {platform: local}
"""
KATIB = """\
---
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {namespace: kubeflow, name: tuned}
spec:
  objective: {type: maximize, goal: 0.99, objectiveMetricName: accuracy}
  algorithm:
    algorithmName: bayesianoptimization
    algorithmSettings: [{name: random_state, value: "7"}, {name: acq_func, value: gp_hedge}]
  earlyStopping:
    algorithmName: medianstop
    algorithmSettings: [{name: min_trials_required, value: "1"}]
  parallelTrialCount: 3
  maxTrialCount: 12
  maxFailedTrialCount: 3
  parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.01", max: "0.03"}}
    - {name: num-layers, parameterType: int, feasibleSpace: {min: "1", max: "64"}}
    - {name: optimizer, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
  trialTemplate:
    primaryContainerName: main
    trialParameters:
      - {name: learningRate, reference: lr}
      - {name: layers, reference: num-layers}
      - {name: optimizer, reference: optimizer}
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        template:
          spec:
            containers:
              - name: sidecar
                command: [sleep, "9"]
              - name: main
                image: example.org/mnist
                env: [{name: LOG, value: "1"}]
                command: [python3, train.py, "--lr=${trialParameters.learningRate}"]
                args: ["--layers=${trialParameters.layers}", "--opt=${trialParameters.optimizer}"]
                resources: {limits: {nvidia.com/gpu: 1}}
"""
DETERMINED = """\
name: mnist
entrypoint: python3 -m determined.launch.torch_distributed -- python3 train.py --x 1
hyperparameters:
  global_batch_size: 64
  lr: {type: log, base: 10, minval: -5, maxval: -2}
  hidden: {type: int, minval: 8, maxval: 64}
  optimizer:
    name: {type: categorical, vals: [sgd, adam]}
    momentum: {type: const, val: 0.9}
searcher:
  name: adaptive_asha
  metric: accuracy
  smaller_is_better: false
  max_trials: 64
  max_length: {epochs: 64}
  max_concurrent_trials: 4
max_restarts: 2
resources: {slots_per_trial: 1}
environment: {image: example}
"""
HYDRA = """\
defaults:
  - override hydra/sweeper: optuna
hydra:
  sweeper:
    sampler: {_target_: optuna.samplers.TPESampler, seed: 123, n_startup_trials: 5}
    direction: maximize
    study_name: sphere
    n_trials: 30
    n_jobs: 1
    params:
      x: range(-5.5, 5.5, step=0.5)
      model/kind: choice(small, large)
      lr: tag(log, interval(1e-5, 1e-2))
      units: int(interval(1, 8))
      w: 3
x: 1
"""
HYDRA_OLD = """\
hydra:
  sweeper:
    n_trials: 9
    search_space:
      x: {type: float, low: -5.5, high: 5.5, step: 0.5}
      units: {type: int, low: 1, high: 64, log: true}
      kind: {type: categorical, choices: [a, b]}
      rate: {type: float, low: 1, high: 10, log: true}
"""
AXOLOTL = """\
learning_rate: [0.0003, 0.0006]
lora_r: [8, 16, 32]
_:
  - {adapter: lora, load_in_8bit: true}
  - {adapter: qlora, load_in_4bit: true}
"""
RAY = """\
cartpole-ppo:
  env: CartPole-v1
  run: PPO
  stop: {timesteps_total: 100000}
  num_samples: 2
  config:
    gamma: 0.99
    lr: {grid_search: [0.0003, 0.0005]}
    model: {vf_share_layers: {grid_search: [true, false]}}
"""
RAY_TEXTS = """\
metric: loss
mode: min
num_samples: 12
time_budget_s: 60
param_space:
  lr: tune.loguniform(1e-4, 1e-1)
  layers: tune.randint(1, 5)
  kind: "tune.choice(['a', 'b'])"
  seed: 3
"""
