"""Searches that meet with faults are set up as those of the contract are."""

import pytest


@pytest.fixture
def storage_name() -> str:
    """Faults are met in SQLite; the contract holds in servers too."""
    return "sqlite"
