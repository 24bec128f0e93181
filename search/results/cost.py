"""What a study has cost: the search, the audit and the confirmation, and each part of the gain.

Nothing is estimated. What is unknown of one trial is unknown of a sum that has it, and the sum of the others
is told with the number of trials that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..formatting import counted, duration
from ..trials.records import StudyRecords, TrialRecord
from ..trials.usage import Usage
from .confirmation import Confirmed

HOUR = 3600.0


@dataclass(frozen=True)
class Spending:
    """What some trainings have cost together."""

    trials: int  # that have begun
    hours: float  # of workers
    machine_hours: float | None  # the same, times the part of the machine's cores that a worker has
    gpu_hours: float | None
    gpu_watt_hours: float | None  # None where a GPU has no counter that can be read
    cpu_watt_hours: float | None
    money: float | None  # where there is a price
    unknown: int  # trials of which no more than the hours is known: they are in no other figure

    @classmethod
    def of(cls, used: Iterable[Usage | None], price: float | None) -> Spending:
        """The sum of what trials have used; None: of one nothing is known."""
        every = list(used)
        known = [each for each in every if each is not None and each.gpu_seconds is not None]
        hours = sum(each.seconds or 0.0 for each in every if each is not None) / HOUR
        gpu_hours = _sum(every, [each.gpu_seconds for each in known], HOUR)
        machine_hours = _sum(every, [each.machine_seconds for each in known], HOUR)
        priced = gpu_hours or machine_hours
        return cls(
            trials=len(every),
            hours=round(hours, 6),
            machine_hours=machine_hours,
            gpu_hours=gpu_hours,
            gpu_watt_hours=_sum(every, [each.gpu_wh for each in known]) if gpu_hours else None,
            cpu_watt_hours=_sum(every, [each.cpu_wh for each in known]),
            money=None if price is None or priced is None else round(price * priced, 4),
            unknown=len(every) - len(known),
        )

    @property
    def watt_hours(self) -> float | None:
        """The energy that was measured; None where nothing was."""
        known = [each for each in (self.gpu_watt_hours, self.cpu_watt_hours) if each is not None]
        return sum(known) if known else None

    def per(self, gain: float) -> PerUnit:
        """The same for each unit of a gain."""
        amounts = (self.gpu_hours or None, self.machine_hours, self.watt_hours, self.money)
        return PerUnit(*(None if amount is None else amount / gain for amount in amounts))


@dataclass(frozen=True)
class PerUnit:
    """What each unit of the gain over the baseline has cost."""

    gpu_hours: float | None
    machine_hours: float | None
    watt_hours: float | None
    money: float | None


@dataclass(frozen=True)
class StudyCost:
    """What a study has cost so far."""

    search: Spending
    audit: Spending  # what audited trials have used after early stopping would have ended them
    confirmation: Spending
    total: Spending
    measured: list[str]  # whose energy was measured: GPU, CPU package; empty: nothing was
    price_per_hour: float | None  # of a GPU, or of the machine where trials train without
    gain: float | None = None  # over the baseline, in the metric; None where there is none
    gain_is_confirmed: bool = False
    per_unit: PerUnit | None = None  # of the gain
    in_words: list[str] = field(default_factory=list)  # the same, in lines


def cost_of(
    records: StudyRecords, winner: TrialRecord | None, confirmed: Confirmed | None, price: float | None
) -> StudyCost:
    """What a study has cost, by what its trials have used and what an hour costs, where that is known."""
    begun = [record for record in records.by_number.values() if record.trial.datetime_start is not None]
    search, audit, confirmation = list[Usage | None](), list[Usage | None](), list[Usage | None]()
    for record in begun:
        used, before = record.used, record.used_before_audit
        if record.confirms is not None:
            confirmation.append(used)
        elif record.audited_at is not None:
            search.append(before)
            audit.append(None if used is None or before is None else used - before)
        else:
            search.append(used)
    total = Spending.of([record.used for record in begun], price)
    gain = _gain(records, winner, confirmed)
    known = [used for used in search + audit + confirmation if used is not None]
    cost = StudyCost(
        search=Spending.of(search, price),
        audit=Spending.of(audit, price),
        confirmation=Spending.of(confirmation, price),
        total=total,
        measured=sorted({name for used in known for name in used.measured}, reverse=True),
        price_per_hour=price,
        gain=gain,
        gain_is_confirmed=confirmed is not None and confirmed.gain is not None,
        per_unit=None if gain is None or gain <= 0 else total.per(gain),
    )
    return replace(cost, in_words=cost_in_words(cost))


def _gain(records: StudyRecords, winner: TrialRecord | None, confirmed: Confirmed | None) -> float | None:
    """How much better than the baseline the winner is, as far as is known."""
    if confirmed is not None:
        return None if confirmed.gain is None else confirmed.gain.value
    baseline = records.baseline
    if winner is None or winner.loss is None or baseline is None or baseline.loss is None:
        return None
    return baseline.loss - winner.loss


def cost_in_words(cost: StudyCost) -> list[str]:
    """What a study has cost, in lines."""
    total, price = cost.total, cost.price_per_hour
    if not total.trials:
        return []
    if total.gpu_hours:
        what, field = "of GPUs", "gpu_hours"
    elif total.machine_hours is not None:
        what, field = "of the machine", "machine_hours"
    else:
        what, field = "of workers", "hours"

    def time(spending: Spending) -> str:
        return duration(HOUR * (getattr(spending, field) or 0.0))

    parts = (("search", cost.search), ("audit", cost.audit), ("confirmation", cost.confirmation))
    shares = [f"{name} {time(spending)}" for name, spending in parts if spending.trials]
    line = f"{time(total)} {what}" + (f": {', '.join(shares)}" if len(shares) > 1 else "")
    if total.watt_hours is not None:
        line += f"; {total.watt_hours:.3g} Wh ({' and '.join(cost.measured)})"
    if total.money is not None:
        line += f"; {total.money:,.2f} at {price:g} an hour"
    lines = [line]
    if cost.gain is not None and cost.gain > 0:
        certain = "" if cost.gain_is_confirmed else ", which is not confirmed"
        each = duration(HOUR * (getattr(total, field) or 0.0) / cost.gain)
        paid = f", {total.money / cost.gain:,.4g}" if total.money is not None else ""
        gain = f"a gain of {cost.gain:.4g} over the baseline{certain}"
        lines.append(f"{gain}: {each}{paid} per unit of it")
    if total.unknown and total.unknown < total.trials:
        lacks = f"{counted(total.unknown, 'trials')} of {total.trials}"
        lines.append(f"without {lacks}, of which it is unknown")
    return lines


def _sum(trials: Sequence[object], amounts: Sequence[float | None], unit: float = 1.0) -> float | None:
    """The sum, in this unit; None where one is unknown, or those of all trials are."""
    known = [amount for amount in amounts if amount is not None]
    is_unknown = len(known) < len(amounts) or (trials and not known)
    return None if is_unknown else round(sum(known) / unit, 6)
