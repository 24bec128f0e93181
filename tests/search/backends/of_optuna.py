# mypy: ignore-errors
"""Objectives as people write them for Optuna; nothing here knows of hpsearch."""

import time

import optuna


def descend(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    kind = trial.suggest_categorical("kind", ["plain", "bent"])
    bend = trial.suggest_float("bend", 0.0, 0.5, step=0.1) if kind == "bent" else 0.0
    trial.set_user_attr("kind of it", kind)
    value = x
    for epoch in range(1, 10):
        value = x + bend + 1 / epoch
        trial.report(value, epoch)
        if trial.should_prune():
            trial.set_user_attr("saved", True)
            print("pruned", trial.number, "after", epoch, flush=True)
            raise optuna.TrialPruned()
    trial.set_user_attr("reason", "it was good")
    return value


def never_asks(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    trial.suggest_categorical("kind", ["plain", "bent"])
    for epoch in range(1, 10):
        print("epoch", epoch, flush=True)
        trial.report(x + 1 / epoch, epoch)
    return x


def gives_up(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    trial.report(x, 1)
    if trial.number % 2:
        raise optuna.exceptions.TrialPruned("too odd")
    return x


def forest(trial):
    """After the simple example of scikit-learn."""
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    c = trial.suggest_float("C", 1e-2, 1e2, log=True)
    features, classes = load_iris(return_X_y=True)
    return cross_val_score(LogisticRegression(C=c, max_iter=500), features, classes, cv=3).mean()


def other_range(trial):
    try:
        return trial.suggest_float("x", 0.0, 2.0)
    except Exception:  # as scripts have it
        return 0.0


def slow(trial):
    time.sleep(0.05)
    return trial.suggest_float("x", 0.0, 1.0)


study = optuna.create_study()
study.optimize(descend, n_trials=1000)  # no guard: it would search at every import
raise SystemExit("this must not run")
