"""The metric of a script: what it prints as JSON, logs, or watches; for a Trainer its eval_loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .syntax import assignments, called, constant, name_of

WITH_TRAINERS = ("transformers", "trl", "sentence_transformers", "setfit")
OF_TRAINERS = re.compile(r"\w*(Trainer|TrainingArguments)")
VALIDATION = re.compile(r"(val|valid|validation|eval|dev|test)[_/]\w+|\w+_(val|valid|eval)", re.IGNORECASE)
LOSS = re.compile(
    r"(.*[_/])?(\w*(loss|error|perplexity)|ppl|nll|bpc|bpb|r?msl?e|s?mape|w?mae|mase|err|deviance"
    r"|[wc]er|eer|ece|fid|lpips|brier(_score)?|crps|pinball|kld?|kl_div(ergence)?|b?ce|cross_?entropy|regret"
    r"|neg(ative)?_log_likelihood)([_/](val|valid|eval|macro|micro))?",
    re.IGNORECASE,
)
SCORE = re.compile(
    r"(.*[_/])?(acc(uracy)?_?[15]?|top_?[15]|f1|f_?beta|\w*auc|auroc|auprc|bleu|sacrebleu|chrf|meteor|rouge\w*"
    r"|m_?ap(@?_?\d[\d@:._-]*)?|average_precision|m?iou|jaccard|dice|r2|precision|recall|sensitivity|specificity"
    r"|kappa|correlation|corr|pearsonr?|spearmanr?|mcc|exact_match|em|score|rewards?|returns?|psnr|ssim"
    r"|m?ndcg|mrr|hit_?rate|win_rate|success_rate|elbo|log_likelihood)"
    r"(@\d+|[_/](val|valid|eval|score|macro|micro|weighted|mean))?",
    re.IGNORECASE,
)
NEGATED = re.compile(r"(.*[_/])?neg_(?!log_likelihood)(?P<rest>.+)", re.IGNORECASE)  # scikit-learn's scorers
LONGEST_METRIC_NAME = 100  # longer texts are not names
WATCHED_RANK = 9  # of a metric that is watched
Goal = Literal["minimize", "maximize"]
DIRECTIONS: dict[object, Goal] = {"min": "minimize", "max": "maximize", False: "minimize", True: "maximize"}


@dataclass(frozen=True)
class Shown:
    """A metric, which way it is better, and whether a Trainer of transformers measures it."""

    metric: str = "val_loss"
    goal: Goal = "minimize"
    by_trainer: bool = False


def shown_by(tree: ast.AST) -> Shown:
    """The metric of a script; val_loss where none is found."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if _has_trainer(tree):
        return _of_a_trainer(tree, calls)
    kept = _kept(tree)
    printed = [key for call in calls if called(call) == "dumps" for key in _keys(call.args[:1], kept)]
    watched = _watched(calls)
    logged = [*_logged(calls), *(key for keys in kept.values() for key in keys), *_keys(ast.walk(tree), {})]
    found = min(filter(_rank, printed), key=_rank, default=None)
    if found is None:  # what is watched is a metric, whatever its name
        found = min(watched, key=lambda name: _rank(name) or WATCHED_RANK, default=None)
    if found is None:
        validation = (name for name in logged if VALIDATION.fullmatch(name) and _rank(name))
        found = min(validation, key=_rank, default=None)
    return Shown() if found is None else Shown(found, watched.get(found) or goal_of(found))


def goal_of(metric: str) -> Goal:
    """Which way a metric of this name is better."""
    if negated := NEGATED.fullmatch(metric):
        return "minimize" if goal_of(negated["rest"]) == "maximize" else "maximize"
    return "maximize" if SCORE.fullmatch(metric) and not LOSS.fullmatch(metric) else "minimize"


def _rank(name: str) -> int:
    """How likely a name is the metric to search by: 1 is most likely, 0 is none."""
    if len(name) > LONGEST_METRIC_NAME:
        return 0
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


def _of_a_trainer(tree: ast.AST, calls: Iterable[ast.Call]) -> Shown:
    """From the trainer's arguments, even if they are set later: `args.greater_is_better = False`."""
    given = [each for call in calls for each in call.keywords]
    said = [(each.arg, each.value) for each in given] + [
        (target.attr, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]
    values = [(name, value.value) for name, value in said if isinstance(value, ast.Constant)]
    bests = [value for name, value in values if name == "metric_for_best_model" and isinstance(value, str)]
    ways = [value for name, value in values if name == "greater_is_better" and isinstance(value, bool)]
    best = next(iter(bests), "loss")
    metric = best if best.startswith("eval_") else f"eval_{best}"
    if ways:
        return Shown(metric, DIRECTIONS[ways[0]], by_trainer=True)
    known = goal_of(metric) if LOSS.fullmatch(metric) or NEGATED.fullmatch(metric) else "maximize"
    return Shown(metric, known, by_trainer=True)


def _watched(calls: Iterable[ast.Call]) -> dict[str, Goal | None]:
    """The watched metrics, and which way each is better: `EarlyStopping(monitor="val_f1", mode="max")`."""
    watched: dict[str, Goal | None] = {}
    for call in calls:
        given = {each.arg: each.value for each in call.keywords}
        first = call.args[0] if call.args and called(call) == "EarlyStopping" else None
        name, mode = (constant(each) for each in (given.get("monitor", first), given.get("mode")))
        if isinstance(name, str):
            watched[name] = watched.get(name) or DIRECTIONS.get(mode)
    return watched


def _kept(tree: ast.AST) -> dict[str, list[str]]:
    """The keys of each name's mapping: `stats = {"step": 1}`, `stats["acc"] = 1`, `stats.update(lr=1)`."""
    kept: dict[str, list[str]] = {}
    for name, value in assignments(ast.walk(tree)):
        kept.setdefault(name, []).extend(_keys([value], {}))
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(key := constant(node.slice), str):
                kept.setdefault(str(name_of(node.value)), []).append(key)
        elif isinstance(node, ast.Call) and called(node) == "update" and isinstance(node.func, ast.Attribute):
            found = [*(each.arg for each in node.keywords if each.arg), *_keys(node.args[:1], {})]
            kept.setdefault(str(name_of(node.func.value)), []).extend(found)
    return kept


def _keys(nodes: Iterable[ast.AST], kept: Mapping[str, list[str]]) -> Iterator[str]:
    """The keys of mappings written out, `{"loss": 1, **stats}`, `dict(loss=1)`, or `kept` by name."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    yield from _keys([value], kept)
                elif isinstance(text := constant(key), str):
                    yield text
        elif isinstance(node, ast.Call) and called(node) == "dict":
            yield from (each.arg for each in node.keywords if each.arg)
            yield from _keys([*node.args[:1], *(each.value for each in node.keywords if not each.arg)], kept)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from kept.get(str(name_of(node)), ())


def _logged(calls: Iterable[ast.Call]) -> Iterator[str]:
    """`self.log("val_loss", loss)`, `writer.add_scalar("val/loss", loss, step)`."""
    for call in calls:
        first = call.args[0] if call.args else None
        if called(call) in ("log", "add_scalar", "log_metric") and isinstance(first, ast.Constant):
            yield str(first.value)
