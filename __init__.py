"""hpsearch: hyperparameter search for PyTorch training, around Optuna and Ray Tune.

The repository root is this package, so nothing is imported here and no other module lives at the root.
"""
