"""What is shown of a URL that holds a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpsearch.storage.passwords import hidden, without_passwords


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h/d", "postgresql://u:***@h/d"),
        ("postgresql+psycopg://u:s%40cret@h:5432/d", "postgresql+psycopg://u:***@h:5432/d"),
        ("mysql://u:se/cr?et#@h/d", "mysql://u:***@h/d"),
        ("mysql://u:sec@ret@h/d", "mysql://u:***@h/d"),
        ("mysql://u:se c:ret@h", "mysql://u:***@h"),
        ("mysql://:secret@h", "mysql://:***@h"),
        ("mysql://u@h/d", "mysql://u@h/d"),
        ("mysql://h:3306/d", "mysql://h:3306/d"),
        ("postgresql://h/d?user=u&password=secret", "postgresql://h/d?user=u&password=***"),
        (
            "postgresql:///d?host=/run&sslPassword=a=b&sslmode=require",
            "postgresql:///d?host=/run&sslPassword=***&sslmode=require",
        ),
        ("--storage=mysql://u:secret@h/d", "--storage=mysql://u:***@h/d"),
        ("sqlite:///runs:of@me.db", "sqlite:///runs:of@me.db"),
        ("--trials", "--trials"),
        ("me:you@home", "me:you@home"),
    ],
)
def test_a_password_is_hidden_and_nothing_else(url: str, shown: str) -> None:
    assert hidden(url) == shown
    assert hidden(shown) == shown


def test_a_message_that_quotes_a_word_quotes_it_without_its_password() -> None:
    words = ["list", "--storage=mysql://u:secret@h/d", "postgresql://u:other@h/d", "--x="]
    said = "unexpected (postgresql://u:other@h/d) of me@home, no such file mysql://u:secret@h/d"
    assert without_passwords(said, words) == (
        "unexpected (postgresql://u:***@h/d) of me@home, no such file mysql://u:***@h/d"
    )


def test_a_message_that_cuts_a_word_or_takes_it_for_a_path_has_nothing_of_the_password() -> None:
    long = "postgresql://u:a-long-secret@h/d"
    said = f'not "{long[:21]}... and not "{long[:15]}...; cannot write {Path(long)}, {Path(long[:20])}...'
    assert without_passwords(said, ["--name", long]) == (
        'not "postgresql://u:***... and not "postgresql://u:...; '
        "cannot write postgresql:/u:***@h/d, postgresql:/u:***..."
    )
