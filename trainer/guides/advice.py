"""The advice of the training guides after a run, in the numbers of that run.

| the run | advice, unless already followed |
|---|---|
| diverged | clip gradients that grew, lower the learning rate, warm up, weaken adapters, let the rate fall |
| got worse, and so did its training loss | the same |
| ran out of memory | smaller batches, lower ranks, recomputed activations, shorter rows, a smaller model |
| overfitted | shorter, early stopping, more dropout and weight decay, fewer weights |
| hardly learned | a higher learning rate, more rank |
| was still learning at the end | a longer run, more rank |

    advise(LoraConfig, EndedRun(params, "diverged", reports))
        ->  ["lower learning_rate from 0.03 to 0.003", ...]

Advice names only parameters that the run has and that have an effect in it. For a parameter that the search
varied, advice never contradicts the search: it points towards the best trial, and beyond it only past the end
of a range. This module imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ..config.training import TrainingConfig
from .evidence import EndedRun, RunEvidence, Validation

MAX_SENTENCES = 4  # sentences; the first ones in the guides help most
OVERFITTING_RISE = 0.01  # relative to the best validation: a larger rise is not the noise of a small text
DIVERGING_RISE = 0.1  # relative to the best validation: a larger rise is more than a rate slightly too high
MIN_GAIN = 0.02  # relative to the first validation: a run with a smaller gain has hardly learned
NOISE_RISE = 0.001  # relative to a validation: a smaller rise does not mean that a run gets worse
CONVERGED_GAIN = 0.05  # relative gain in the last quarter of a run, above which it was still learning
HIGH_RANK = 64  # above it, adapters are as large as the weights that they adapt
NORM_GROWTH = 10.0  # growth of a gradient's norm over its first value that is not noise

# Users' objectives have several names for the same parameter.
RATES = ("learning_rate", "lr")
BATCHES = ("batch_size", "per_device_train_batch_size")
ROW_LENGTHS = ("max_length", "max_seq_length")
CLIPS = ("max_grad_norm", "gradient_clip_norm", "grad_clip")
DROPOUTS = ("lora_dropout", "dropout")
DEPTHS = ("depth", "num_hidden_layers", "num_layers")


def advise(config: type[TrainingConfig] | None, seen: EndedRun) -> list[str]:
    """At most `MAX_SENTENCES` sentences, the most helpful first; none if no rule applies.

    `config` is the class of a built-in objective, whose defaults complete the run's parameters. If it is
    None, only the given parameters are known.
    """
    run = RunEvidence(config, seen)
    if seen.ended == "diverged":
        sentences = list(_diverged(run))
    elif seen.ended == "out_of_memory":
        sentences = list(_out_of_memory(run))
    else:
        sentences = _complete(run, WORSENING + SLOW)
    return sentences[:MAX_SENTENCES]


def advise_worse(config: type[TrainingConfig] | None, seen: EndedRun) -> list[str]:
    """The advice for a run that ended worse than its best validation; none for other runs."""
    return _complete(RunEvidence(config, seen), WORSENING)[:MAX_SENTENCES]


# After divergence


def _diverged(run: RunEvidence) -> Iterator[str]:
    grown = _grown_norm(run)
    if grown is not None:
        yield from _clip(run, grown)
    yield from _lower_rate(run)
    yield from _warm_up(run)
    if grown is None:
        yield from _clip(run, None)
    yield from _weaken_adapters(run)
    yield from _let_it_fall(run)


def _grown_norm(run: RunEvidence) -> tuple[float, float] | None:
    """The gradient's first and largest norm, if it grew."""
    norms = [report.metrics.get("grad_norm", math.nan) for report in run.seen.reports]
    norms = [norm for norm in norms if not math.isnan(norm)]
    if not norms or not 0 < norms[0] < math.inf or max(norms) < NORM_GROWTH * norms[0]:
        return None
    return norms[0], max(norms)


def _clip(run: RunEvidence, grown: tuple[float, float] | None) -> Iterator[str]:
    clip = run.first(CLIPS)
    if clip is None:
        return
    name, limit = clip
    if run.open(name, 1.0) != 1:
        return
    norms = " to ".join(map(_readable, grown or ()))
    reason = f"the gradient's norm grew from {norms}: " if grown else ""
    if limit == 0:
        yield f"{reason}set {name} to 1 (it is 0, which is no limit)"
    elif limit > 1 and grown:
        yield f"{reason}lower {name} from {_as_written(limit)} to 1"


def _lower_rate(run: RunEvidence) -> Iterator[str]:
    rate = run.first(RATES)
    if rate is None or rate[1] <= 0:
        return
    name, value = rate
    best = run.best_rate(name)
    if best is None:
        yield from _changed(run, name, value, value / 10)
    elif value > best[1]:
        times = f"{_readable(value / best[1], 2)} times that of the best trial"
        yield f"{name} {_as_written(value)} is {times} ({_as_written(best[1])} in trial {best[0]}): lower it"


def _warm_up(run: RunEvidence) -> Iterator[str]:
    """A warm-up steadies the start, so it helps runs that diverge in their first half.

    The one-cycle schedule starts low anyway.
    """
    ratio = run.number("warmup_ratio")
    if ratio is None or run.number("warmup_steps") or run.values.get("lr_scheduler") == "one_cycle":
        return
    if not _in_first_half(run) or not 0 <= ratio < 0.1:
        return
    if ratio > 0:
        yield from _changed(run, "warmup_ratio", ratio, 0.1)
    elif (to := run.open("warmup_ratio", 0.1)) is not None:
        yield f"set warmup_ratio to {_as_written(to)} (it is 0, so the first step is at the full rate)"


def _in_first_half(run: RunEvidence) -> bool:
    length = run.length()
    return length is None or not run.seen.reports or _turning_step(run) <= length[1] / 2


def _turning_step(run: RunEvidence) -> int:
    """The step where it went wrong: the last report of a run that diverged, else the best validation."""
    return run.seen.reports[-1].step if run.seen.ended == "diverged" else _best(run).step


def _weaken_adapters(run: RunEvidence) -> Iterator[str]:
    alpha, ratio, rank = (run.number(name) for name in ("lora_alpha", "alpha_over_r", "lora_r"))
    if run.open("lora_alpha", 0) is None or run.open("alpha_over_r", 4) is None:
        return
    if ratio is not None and ratio > 4:
        yield f"lower alpha_over_r from {_as_written(ratio)}: 2 to 4 is usual"
    elif ratio is None and alpha is not None and rank is not None and 0 < 4 * rank < alpha:
        is_times = f"{_as_written(alpha)} is {_readable(alpha / rank, 2)} times"
        yield f"lora_alpha {is_times} lora_r {_as_written(rank)}: 2 to 4 times is usual"


def _let_it_fall(run: RunEvidence) -> Iterator[str]:
    length = run.length()
    if not run.is_open("lr_scheduler", ("linear", "cosine")):
        return
    if run.values.get("lr_scheduler") == "constant" and length and not _in_first_half(run):
        at = f"at {_turning_step(run):,} of {_readable(length[1])} {run.seen.unit}"
        yield f"set lr_scheduler to linear or cosine: {at} they have already lowered the rate"


# After running out of memory


def _out_of_memory(run: RunEvidence) -> Iterator[str]:
    yield from _smaller_batches(run)
    rank = run.number("lora_r")
    if rank is not None and rank > HIGH_RANK:
        yield f"lower lora_r from {_as_written(rank)} to {int(rank // 2)}: half the adapters"
    if run.values.get("gradient_checkpointing") is False:
        yield "set gradient_checkpointing to true: activations are recomputed, a fifth to a third slower"
    if run.values.get("precision") in (("fp32",) if run.on_cuda else ("auto", "fp32")):
        yield "set precision to bf16, if the device has it: activations of half the size"
    if run.values.get("bf16") is False and run.values.get("fp16") in (None, False):
        yield "set bf16 to true: numbers of half the size"
    row = run.first(ROW_LENGTHS)
    if row is not None and row[1] >= run.shortest:
        yield f"lower {row[0]} from {_as_written(row[1])} to {int(row[1] // 2)}, if the text allows it"
    yield from _smaller_model(run, "a smaller model")


def _smaller_batches(run: RunEvidence) -> Iterator[str]:
    batch = run.first(BATCHES)
    if batch is None or batch[1] < 2 or run.cuts_batches:
        return
    name, rows = batch[0], int(batch[1])
    halved = f"halve {name} from {rows} to {rows // 2}"
    parts = run.number("gradient_accumulation_steps")
    if parts is None or parts < 1 or run.values.get("finetuning_type") == "lora":  # passes share the step
        yield f"{halved}: half the activations"
        return
    more = math.ceil(rows * int(parts) / (rows // 2))
    same = "the same step" if more * (rows // 2) == rows * int(parts) else "about the same step"
    and_more = f"and raise gradient_accumulation_steps from {int(parts)} to {more}"
    yield f"{halved} {and_more}: {same} with half the activations"


def _smaller_model(run: RunEvidence, why: str) -> Iterator[str]:
    depth = run.first(DEPTHS)
    if depth is None or depth[1] < 2:
        return
    fewer = run.open(depth[0], depth[1] // 2)
    if fewer is not None:
        verb = "halve" if fewer == depth[1] // 2 else "lower"
        yield f"{verb} {depth[0]} from {_as_written(depth[1])} to {int(fewer)}: {why}"


# After a complete run


def _complete(run: RunEvidence, kinds: Sequence[Diagnosis]) -> list[str]:
    """The advice of the first symptom that the curve shows; its first sentence begins with the symptom."""
    for symptom_of, remedies_for in kinds:
        symptom = symptom_of(run)
        if symptom is not None:
            remedies = list(remedies_for(run))
            return [f"{symptom}: {remedies[0]}", *remedies[1:]] if remedies else []
    return []


def _overfitted(run: RunEvidence) -> str | None:
    """The last two validations are worse than the best (one may be noise), but the training loss fell.

    Without the training loss this cannot be detected.
    """
    before, after = _train_losses(run, OVERFITTING_RISE)
    if not after < before:
        return None
    return f"{_from_best(run)} while train_loss fell from {_readable(before)} to {_readable(after)}"


def _burst(run: RunEvidence) -> str | None:
    """The last two validations are far worse than the best, and the training loss is no better."""
    before, after = _train_losses(run, DIVERGING_RISE)
    if not after >= before:
        return None
    return f"{_from_best(run)} and train_loss from {_readable(before)} to {_readable(after)}"


def _train_losses(run: RunEvidence, rise: float) -> tuple[float, float]:
    """The training losses at the best and at the last validation.

    NaN unless the last two validations are worse than the best by more than this share of it.
    """
    if len(run.validations) < 3:
        return math.nan, math.nan
    best, last = _best(run), run.validations[-1]
    if any(run.sign * (each.value - best.value) <= rise * abs(best.value) for each in run.validations[-2:]):
        return math.nan, math.nan
    return best.metrics.get("train_loss", math.nan), last.metrics.get("train_loss", math.nan)


def _from_best(run: RunEvidence) -> str:
    return _change(run, _best(run), run.validations[-1], "rose", "fell")


def _against_overfitting(run: RunEvidence) -> Iterator[str]:
    best, length = _best(run), run.length()
    patience = run.number("early_stopping_patience")
    if not patience and length is not None and best.step < length[1] and run.open(length[0], best.step):
        yield f"lower {length[0]} from {_as_written(length[1])} to {best.step}"
    if patience == 0 and run.open("early_stopping_patience", 3) == 3:
        yield "set early_stopping_patience to 3 (it is 0): the run ends after 3 worse validations"
    dropout = run.first(DROPOUTS)
    if dropout is not None and 0 <= dropout[1] < 0.1:
        yield from _changed(run, *dropout, 0.05 if dropout[1] < 0.03 else 0.1)
    decay = run.number("weight_decay")
    if decay is not None and 0 <= decay < 0.1:
        yield from _changed(run, "weight_decay", decay, 0.01 if decay < 0.01 else 0.1)
    rank = run.number("lora_r")
    if rank is not None and rank > 8:
        yield from _changed(run, "lora_r", rank, max(8, int(rank // 2)))
    yield from _smaller_model(run, "fewer weights to overfit with")


def _changed(run: RunEvidence, name: str, value: float, to: float) -> Iterator[str]:
    """Advice to change a number, as far as the search leaves that open."""
    if (open_value := run.open(name, to)) is not None:
        verb = "raise" if to > value else "lower"
        yield f"{verb} {name} from {_as_written(value)} to {_as_written(open_value)}"


def _hardly_learned(run: RunEvidence) -> str | None:
    """A small gain and never a worse validation: the steps were too short rather than too long."""
    curve = run.validations
    if len(curve) < 3:
        return None
    gain = run.sign * (curve[0].value - curve[-1].value)
    pairs = pairwise(report.value for report in curve)
    worse = any(run.sign * (after - before) > NOISE_RISE * abs(before) for before, after in pairs)
    if worse or not 0 <= gain < MIN_GAIN * abs(curve[0].value):
        return None
    return _change(run, curve[0], curve[-1], "rose only", "fell only")


def _against_slowness(run: RunEvidence) -> Iterator[str]:
    rate = run.first(RATES)
    if rate is not None and rate[1] > 0:
        name, value = rate
        best = run.best_rate(name)
        if best is None or (value == best[1] and name in run.seen.searched):
            yield from _changed(run, name, value, value * 10)
        elif value < best[1]:
            better = f"the best trial ({best[0]}) has {_as_written(best[1])}"
            yield f"raise {name} from {_as_written(value)}; {better}"
    yield from _more_rank(run)


def _still_learning(run: RunEvidence) -> str | None:
    """The gain in the last quarter is too large for a run that has converged."""
    curve = run.validations
    if len(curve) < 4:
        return None
    before, last = curve[-1 - len(curve) // 4], curve[-1]
    if run.sign * (before.value - last.value) <= CONVERGED_GAIN * abs(before.value):
        return None
    return _change(run, before, last, "still rose", "still fell")


def _against_an_early_end(run: RunEvidence) -> Iterator[str]:
    length, last = run.length(), run.validations[-1]
    if length is not None and last.step >= length[1]:
        yield from _changed(run, *length, 2 * length[1])
    yield from _more_rank(run)


def _more_rank(run: RunEvidence) -> Iterator[str]:
    rank = run.number("lora_r")
    if rank is not None and 0 < rank < 8:
        yield from _changed(run, "lora_r", rank, 8)


# A symptom, if the run has it, and its remedies.
Diagnosis = tuple[Callable[[RunEvidence], str | None], Callable[[RunEvidence], Iterator[str]]]
WORSENING: list[Diagnosis] = [(_overfitted, _against_overfitting), (_burst, _diverged)]
SLOW: list[Diagnosis] = [(_hardly_learned, _against_slowness), (_still_learning, _against_an_early_end)]


def _best(run: RunEvidence) -> Validation:
    return min(run.validations, key=lambda report: run.sign * report.value)


def _change(run: RunEvidence, before: Validation, after: Validation, up: str, down: str) -> str:
    """`val_loss rose from 1.31 at 1,200 to 1.4 at 1,800 samples`."""
    verb = up if after.value > before.value else down
    return (
        f"{run.seen.metric} {verb} from {_readable(before.value, 5)} at {before.step:,} "
        f"to {_readable(after.value, 5)} at {after.step:,} {run.seen.unit}"
    )


def _as_written(value: float) -> str:
    """A parameter's value as a space file would have it."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _readable(value: float, digits: int = 4) -> str:
    """A number for people to read: `4,800`, `1.31`, `infinity`."""
    if math.isinf(value):
        return "infinity"
    return f"{value:,.0f}" if 10 ** min(digits, 3) <= abs(value) < 1e6 else f"{value:.{digits}g}"
