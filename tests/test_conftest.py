"""Tests that need extra libraries are skipped without these, but not in CI."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("ci", "mark", "outcome"),
    [("", "extras", "skipped"), ("true", "extras", "failed"), ("true", "slow", "skipped")],
)
def test_in_ci_a_test_of_an_extra_library_is_not_skipped(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ci: str, mark: str, outcome: str
) -> None:
    monkeypatch.setenv("CI", ci)
    item = pytest.Function.from_parent(request.node.parent, name="needs_more", callobj=lambda: None)
    item.add_marker(mark)
    call = pytest.CallInfo.from_call(lambda: pytest.skip("needs a library"), when="call")
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    assert report.outcome == outcome
    assert "needs a library" in str(report.longrepr)
