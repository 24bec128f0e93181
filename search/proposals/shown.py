"""Which metric a script shows: what it prints as JSON, logs, or watches; of a Trainer its eval_loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from .syntax import called

WITH_TRAINERS = ("transformers", "trl", "sentence_transformers", "setfit")
OF_TRAINERS = re.compile(r"\w*(Trainer|TrainingArguments)")
VALIDATION = re.compile(r"(val|valid|validation|eval|dev|test)[_/]\w+|\w+_(val|valid|eval)", re.IGNORECASE)
LOSS = re.compile(r"(.*[_/])?(loss|perplexity|ppl|nll|bpc|bpb|mse|rmse|mae|wer|cer|error|err)", re.IGNORECASE)
SCORE = re.compile(
    r"(.*[_/])?(acc|accuracy|top_?[15]|f1|auc|auroc|bleu|rouge\w*|map\w*|iou|miou|dice|r2|precision|recall"
    r"|score|reward|return|psnr|ssim|mcc|ndcg|mrr)([_/](val|valid|eval|score|macro|micro))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Shown:
    """A metric, which way it is better, and whether a Trainer of transformers measures it."""

    metric: str = "val_loss"
    goal: Literal["minimize", "maximize"] = "minimize"
    by_trainer: bool = False


def shown_by(tree: ast.AST) -> Shown:
    """The metric that a script shows; val_loss where it shows none."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if _has_trainer(tree):
        return _of_a_trainer(calls)
    printed = [key for call in calls if called(call) == "dumps" for key in _keys(call.args[:1])]
    watched = [text for call in calls for text in _texts(call, "monitor")]
    logged = [*_logged(calls), *_keys(ast.walk(tree))]
    for names in (printed, watched):
        if found := min(filter(_rank, names), key=_rank, default=None):
            return Shown(found, goal_of(found))
    found = min(
        (name for name in logged if VALIDATION.fullmatch(name) and _rank(name)), key=_rank, default=None
    )
    return Shown() if found is None else Shown(found, goal_of(found))


def goal_of(metric: str) -> Literal["minimize", "maximize"]:
    """Which way a metric of this name is better."""
    return "maximize" if SCORE.fullmatch(metric) else "minimize"


def _rank(name: str) -> int:
    """How likely a name is that of the metric to search by, 1 most; 0 where it is that of none."""
    kind = 1 if LOSS.fullmatch(name) else 2 if SCORE.fullmatch(name) else 0
    if name.lower().startswith("train"):
        return kind and kind + 4
    return kind and kind + (0 if VALIDATION.fullmatch(name) else 2)


def _has_trainer(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in WITH_TRAINERS:
            names = [name.name for name in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [node.attr] if node.value.id in WITH_TRAINERS else []
        if any(map(OF_TRAINERS.fullmatch, names)):
            return True
    return False


def _of_a_trainer(calls: Iterable[ast.Call]) -> Shown:
    best = next((text for call in calls for text in _texts(call, "metric_for_best_model")), "loss")
    metric = best if best.startswith("eval_") else f"eval_{best}"
    return Shown(metric, "minimize" if LOSS.fullmatch(metric) else "maximize", by_trainer=True)


def _texts(call: ast.Call, keyword: str) -> Iterator[str]:
    """The text that a call is given by this keyword."""
    for each in call.keywords:
        if each.arg == keyword and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
            yield each.value.value


def _keys(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for key in node.keys if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


def _logged(calls: Iterable[ast.Call]) -> Iterator[str]:
    """`self.log("val_loss", loss)`, `writer.add_scalar("val/loss", loss, step)`."""
    for call in calls:
        first = call.args[0] if call.args else None
        if called(call) in ("log", "add_scalar", "log_metric") and isinstance(first, ast.Constant):
            yield str(first.value)
