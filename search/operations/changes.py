"""What a request changes of a space, where that depends on what the space says."""

from __future__ import annotations

from ...spaces import Spec


def confirmation_change(spec: Spec, wanted: bool | None) -> dict[str, int] | None:
    """The change to a space's `confirm` by which the best are confirmed, or are not; None for no change."""
    from ..engine.confirmation_size import CONFIRMATION_SIZES

    if wanted is None or (wanted and spec.confirm.top):
        return None
    return {"top": CONFIRMATION_SIZES[0][0] if wanted else 0}


def audit_change(spec: Spec, wanted: bool | None) -> float | None:
    """The change to a space's `audit` by which stopped trials are audited, or are not; None for no change."""
    from ..scheduling.audit import AUDIT_SHARE

    if wanted is None or (wanted and spec.audit):
        return None
    return AUDIT_SHARE if wanted else 0.0
