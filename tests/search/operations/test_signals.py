"""What a signal does to a search of this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hpsearch.search.operations.signals import signals_ask
from hpsearch.spaces import Spec

from ...support.driving import DrivenStudy


@pytest.mark.parametrize("before", [None, "stopped by anna"])
def test_ctrl_c_asks_a_search_to_stop_and_ends_one_that_does_already(
    before: str | None, make_spec: Callable[..., Spec], tmp_path: Path
) -> None:
    study = DrivenStudy(tmp_path)
    driver = study.driver(make_spec())
    with signals_ask(driver) as caught:
        if before is None:
            signal.raise_signal(signal.SIGINT)
            assert (driver.stop_reason, driver.hurries) == ("interrupted by SIGINT", True)
        else:
            driver.request_stop(before)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert caught[-1] == "SIGINT", "so it is one of ours"
    study.close()
