"""What the files of a Hugging Face model say before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.hf_lora.files import about, longest_row
from hpsearch.trainer.errors import ConfigError

SMALL = {"n_layer": 2, "n_positions": 64}


@pytest.mark.parametrize(
    ("told", "longest"),
    [
        (SMALL, 64),
        (SMALL | {"text_config": {"max_position_embeddings": 128}}, 128),
        (SMALL | {"text_config": {}}, 64),
        (SMALL | {"text_config": 5}, 64),
        ({"n_positions": "many"}, None),
        ({"relative_attention_num_buckets": 32, "n_positions": 64}, None),
    ],
)
def test_the_longest_row_is_read_from_the_model_config(
    tmp_path: Path, told: Any, longest: int | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert longest_row(about(tmp_path)) == longest


@pytest.mark.parametrize("name", ["n_layer", "num_hidden_layers", "decoder_layers", "num_experts", "depth"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_model_of_more_parts_than_any_has_is_refused(tmp_path: Path, name: str, inside: bool) -> None:
    told = {name: 10**9}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": told} if inside else told))
    with pytest.raises(ConfigError, match=f"config.json has {name} 1,000,000,000, more than 10,000"):
        about(tmp_path)
