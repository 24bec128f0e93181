"""No half of a character leaves a database: nothing could write it."""

from __future__ import annotations

import json

from hpsearch.storage.texts import from_json, writable


def test_half_a_character_becomes_an_escape_and_a_whole_one_stays() -> None:
    name = b"caf\xe9 \xc3\xa9 \xf0\x9f\xa6\x80".decode(errors="surrogateescape")
    assert writable(name) == "caf\\udce9 é 🦀"
    stored = json.dumps({"reason": name, "of": [name, 1, None, "é"], name: "\\udce9"})
    assert from_json(stored) == {
        "reason": writable(name),
        "of": [writable(name), 1, None, "é"],
        writable(name): "\\udce9",
    }
