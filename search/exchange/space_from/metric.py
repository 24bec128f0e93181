"""The metric of a script: what it prints as JSON, logs, or watches; for a Trainer its eval_loss."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from .syntax import assignments, constant, keywords, name_of, nodes_of

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
class Metric:
    """A metric, which way it is better, and whether a Trainer of transformers measures it."""

    name: str = "val_loss"
    goal: Goal = "minimize"
    by_trainer: bool = False


def metric_of(tree: ast.AST) -> Metric:
    """The metric of a script; val_loss where none is found."""
    calls = nodes_of(tree, ast.Call)
    if _has_trainer(tree):
        return _of_a_trainer(tree, calls)
    kept = _kept(tree)
    printed = [key for call in calls if name_of(call) == "dumps" for key in _keys(call.args[:1], kept)]
    watched = _watched(calls)
    logged = [*_logged(calls), *chain(*kept.values()), *_keys(ast.walk(tree), {})]
    name = min(filter(_rank, printed), key=_rank, default=None)
    if name is None:  # what is watched is a metric, whatever its name
        name = min(watched, key=lambda each: _rank(each) or WATCHED_RANK, default=None)
    if name is None:
        validation = (each for each in logged if VALIDATION.fullmatch(each) and _rank(each))
        name = min(validation, key=_rank, default=None)
    return Metric() if name is None else Metric(name, watched.get(name) or goal_of(name))


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
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in WITH_TRAINERS:
            names += [name.name for name in node.names]
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in WITH_TRAINERS:
            names.append(node.attr)
    return any(map(OF_TRAINERS.fullmatch, names))


def _of_a_trainer(tree: ast.AST, calls: Iterable[ast.Call]) -> Metric:
    """From the trainer's arguments, even if they are set later: `args.greater_is_better = False`."""
    given = [(each.arg, constant(each.value)) for call in calls for each in call.keywords]
    given += [
        (target.attr, constant(node.value))
        for node in nodes_of(tree, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]
    bests = (value for name, value in given if name == "metric_for_best_model" and isinstance(value, str))
    ways = (value for name, value in given if name == "greater_is_better" and isinstance(value, bool))
    best = next(bests, "loss")
    metric = best if best.startswith("eval_") else f"eval_{best}"
    known = goal_of(metric) if LOSS.fullmatch(metric) or NEGATED.fullmatch(metric) else "maximize"
    return Metric(metric, next((DIRECTIONS[way] for way in ways), known), by_trainer=True)


def _watched(calls: Iterable[ast.Call]) -> dict[str, Goal | None]:
    """The watched metrics, and which way each is better: `EarlyStopping(monitor="val_f1", mode="max")`."""
    watched: dict[str, Goal | None] = {}
    for call in calls:
        given = keywords(call)
        first = call.args[0] if call.args and name_of(call) == "EarlyStopping" else None
        name, mode = (constant(each) for each in (given.get("monitor", first), given.get("mode")))
        if isinstance(name, str):
            watched[name] = watched.get(name) or DIRECTIONS.get(mode)
    return watched


def _kept(tree: ast.AST) -> dict[str, list[str]]:
    """The keys of each name's mapping: `stats = {"step": 1}`, `stats["acc"] = 1`, `stats.update(lr=1)`."""
    kept: dict[str, list[str]] = defaultdict(list)
    for name, value in assignments(ast.walk(tree)):
        kept[name] += _keys([value], {})
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=mapping, slice=ast.Constant(value=str(key)), ctx=ast.Store()):
                kept[str(name_of(mapping))].append(key)
            case ast.Call(func=ast.Attribute(value=mapping, attr="update")):
                kept[str(name_of(mapping))] += [*keywords(node), *_keys(node.args[:1], {})]
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
        elif isinstance(node, ast.Call) and name_of(node) == "dict":
            yield from keywords(node)
            yield from _keys([*node.args[:1], *(each.value for each in node.keywords if not each.arg)], kept)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from kept.get(str(name_of(node)), ())


def _logged(calls: Iterable[ast.Call]) -> Iterator[str]:
    """`self.log("val_loss", loss)`, `writer.add_scalar("val/loss", loss, step)`."""
    for call in calls:
        first = call.args[0] if call.args else None
        if name_of(call) in ("log", "add_scalar", "log_metric") and isinstance(first, ast.Constant):
            yield str(first.value)
