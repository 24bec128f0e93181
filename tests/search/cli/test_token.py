"""`hpsearch token`: what is printed where, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpsearch.search.cli.app import app
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.service.home import Home
from hpsearch.search.service.tokens import FORM, Tokens


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    return Home.at()


def token(*words: str) -> tuple[str, str]:
    """What a command prints, and what it says beside."""
    done = CliRunner().invoke(app, ["token", *words], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_a_token_is_printed_alone_listed_without_its_text_and_revoked(home: Home) -> None:
    out, said = token("create", "anna", "--scope", "work", "--study", "lora*", "--expires", "30d")
    assert FORM.fullmatch(out.strip()) and 'the token "anna" may work, for lora*, until 20' in said
    assert Tokens(home).verify(out.strip()).studies == ("lora*",)
    listed, _ = token("list")
    assert "anna" in listed and "lora*" in listed and out.strip() not in listed
    (row,) = json.loads(token("list", "--json")[0])
    made = json.loads(token("create", "bob", "--json")[0])
    assert row.keys() == made.keys() - {"token"}
    assert 'revoked the token "anna"' in token("revoke", row["id"])[1]
    assert json.loads(token("revoke", "bob", "--json")[0])["name"] == "bob"
    assert "there are no tokens" in token("list")[1]


def test_wrong_use_says_what_is_allowed() -> None:
    wrong = {
        ("create", "anna", "--scope", "reed"): 'did you mean "read"',
        ("create", "anna", "--scope", "work"): "needs the studies",
        ("create", "a\nb"): "is no name for a token",
        ("revoke", "nobody"): "there are: none",
    }
    for words, said in wrong.items():
        with pytest.raises((UsageError, SearchError), match=said):
            token(*words)
