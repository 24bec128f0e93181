"""Tokens: what is kept of them, and who gets in by one."""

from __future__ import annotations

import os
import re
import stat
import threading
from dataclasses import fields
from pathlib import Path

import pytest

from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.tokens import FORM, HAS, SCOPES, InvalidToken, Tokens


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home")


def test_a_token_opens_what_it_says_until_it_ends(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, elsewhere = Tokens(home), Tokens(home)
    made = tokens.create("anna", "write", studies=["lora*"], seconds=60)
    assert FORM.fullmatch(made.token)
    caller = elsewhere.verify(made.token)
    assert (caller.name, caller.scopes) == ("anna", HAS["write"])
    assert caller.may_see("lora_2") and not caller.may_see("gpt") and not caller.may_see("Lora")
    now = __import__("time").time()
    monkeypatch.setattr("hpsearch.search.service.tokens.time.time", lambda: now + 61)
    with pytest.raises(InvalidToken, match='"anna" expired'):
        tokens.verify(made.token)


def test_the_file_holds_hashes_and_is_read_again_when_it_changes(home: Home) -> None:
    server, terminal = Tokens(home), Tokens(home)
    made = terminal.create("anna", "read")
    assert made.token not in home.tokens.read_text()
    assert stat.S_IMODE(home.tokens.stat().st_mode) == 0o600
    server.verify(made.token)
    terminal.revoke("anna")
    with pytest.raises(InvalidToken):
        server.verify(made.token)
    own = server.mint("owner", "admin")
    assert server.verify(own).scopes == frozenset(SCOPES)
    with pytest.raises(InvalidToken):
        terminal.verify(own)
    home.tokens.unlink()
    assert terminal.list().tokens == ()


def test_scopes_have_those_before_them() -> None:
    assert HAS["read"] < HAS["write"] < HAS["code"] < HAS["admin"]
    assert HAS["work"] == {"work"}


def test_programs_that_create_tokens_together_lose_none(home: Home) -> None:
    def create() -> None:
        tokens = Tokens(home)
        for _ in range(5):
            tokens.create("many", "read")

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Tokens(home).list().tokens
    assert len({token.id for token in found}) == 20
    with pytest.raises(UsageError, match="several tokens"):
        Tokens(home).revoke("many")


def test_what_cannot_be_a_token_is_said_with_its_line(home: Home) -> None:
    tokens = Tokens(home)
    tokens.create("anna", "read")
    for wrong in (
        "nonsense",
        '{"id": 1}',
        "[]",
        tokens.home.tokens.read_text().replace('"read"', '"root"').strip(),
    ):
        home.tokens.write_text(home.tokens.read_text().splitlines()[0] + f"\n{wrong}\n")
        with pytest.raises(SearchError, match=r"tokens.jsonl:2: this is no token"):
            tokens.list()
    home.tokens.write_text("")
    home.tokens.chmod(0o666)
    with pytest.raises(SearchError, match="other users may write"):
        Tokens(home).list()
    for arguments in (("", "read"), ("a" * 65, "read"), ("a\nb", "read"), ("a", "root"), ("a", "work")):
        with pytest.raises(UsageError):
            tokens.create(*arguments)
    with pytest.raises(UsageError, match="for all studies"):
        tokens.create("a", "admin", studies=["lora"])


def test_a_home_that_others_write_to_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_one = tmp_path / "open"
    open_one.mkdir()
    open_one.chmod(0o777)
    with pytest.raises(SearchError, match="other users may write"):
        Home.at(open_one)
    (tmp_path / "file").write_text("")
    with pytest.raises(SearchError, match="cannot make"):
        Home.at(tmp_path / "file" / "home")
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "named"))
    assert Home.at().folder == tmp_path / "named"
    with pytest.raises(SearchError, match="too long for a socket"):
        Home.at().socket("x" * 100)


def test_settings_say_what_is_wrong(home: Home, subtests: pytest.Subtests) -> None:
    file = home.folder / "serve.yaml"
    assert home.settings() == Settings()
    file.write_text("roots: [data, /srv]\nlanes: 2\nallow_hosts: lab\nray_studies: 0\n")
    roots = (home.folder / "data", Path("/srv"))
    assert home.settings() == Settings(roots=roots, lanes=2, allow_hosts=("lab",), ray_studies=0)
    wrong = {
        "root: [a]": 'unknown setting "root"; did you mean "roots"', "lanes: 0": "a number from 1", "ray_studies: -1": "a number from 0", "lanes: two": "1",
        "- a": "needs names and values", "roots: 1": "a list of texts", "a: [": "cannot read",
        "base_path: 1": "needs a text", "base_path: hp": "such as /hpsearch", "allow_hosts: 'lab:80'": "without a scheme",
        "allow_origins: 'https://a.org/'": "without a path", "behind_proxy: proxy": "such as 127.0.0.1",
    }  # fmt: skip
    for text, said in wrong.items():
        with subtests.test(text):
            file.write_text(text)
            with pytest.raises(UsageError, match=said):
                home.settings()


def test_the_page_of_the_service_has_each_setting() -> None:
    page = (Path(__file__).parents[3] / "docs/service.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(each.name for each in fields(Settings))
    assert "~/.local/state/hpsearch/serve.yaml" in page and "$HPSEARCH_HOME/serve.yaml" in page


def test_a_lock_is_held_once_and_left_by_the_dead(home: Home) -> None:
    with home.locked("serve") as first, home.locked("serve") as second:
        assert (first, second) == (True, False)
    if (child := os.fork()) == 0:
        home.locked("serve").__enter__()
        os._exit(0)
    os.waitpid(child, 0)
    with home.locked("serve") as again:
        assert again
