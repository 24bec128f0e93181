"""What several tests of objectives train on."""

from __future__ import annotations

import pytest

from .tiny_models import make_models


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The folders of `make_models`, by their kinds."""
    return make_models(tmp_path_factory.mktemp("models"))
