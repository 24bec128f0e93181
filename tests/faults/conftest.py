"""Searches that meet with faults are set up as those of the contract."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "backends_conftest", Path(__file__).parents[1] / "search" / "backends" / "conftest.py"
)
_m = importlib.util.module_from_spec(_spec)
import sys

sys.modules["backends_conftest"] = _m
_spec.loader.exec_module(_m)
backend_name, shared_ray, bench, recorder, command = (
    _m.backend_name,
    _m.shared_ray,
    _m.bench,
    _m.recorder,
    _m.command,
)
_spec2 = importlib.util.spec_from_file_location(
    "search_conftest", Path(__file__).parents[1] / "search" / "conftest.py"
)
_m2 = importlib.util.module_from_spec(_spec2)
_spec2.loader.exec_module(_m2)
make_spec = _m2.make_spec


@pytest.fixture
def storage_name() -> str:
    """Faults are met on SQLite; the contract holds on servers too."""
    return "sqlite"


make_database = _m.make_database
