"""Who is notified: what URLs are taken, what is said of them, and how they are reached."""

from __future__ import annotations

import time
from typing import Any

import pytest
import standardwebhooks

from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.notices import targets, webhook
from hpsearch.search.exchange.notices.base import NotSent
from hpsearch.search.exchange.notices.messages import notice_of_test
from hpsearch.search.exchange.notices.targets import targets_of
from hpsearch.search.exchange.notices.trying import try_each

from ....support.receiver import receiving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_targets_are_named_by_their_hosts_or_schemes() -> None:
    urls = ("https://hooks.example.org/a#" + SECRET, "https://hooks.example.org/b", "http://127.0.0.1:9/x", "https://me:pass@ci.example.org",
            "mailto://me:pass@example.org", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
            "https://hooks.example.org/b")  # fmt: skip
    labels = [target.label for target in targets_of(urls)]
    assert labels == [
        "hooks.example.org",
        "hooks.example.org #2",
        "127.0.0.1",
        "ci.example.org",
        "mailto",
        "slack",
        "hooks.slack.com",
    ]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hooks.example.org/s3cret", "nobody to be notified"),
        ("", "nobody to be notified"),
        ("https://", "nobody to be notified"),
        ("https://a b/s3cret", "nobody to be notified"),
        ("https://[s3cret", "nobody to be notified"),
        ("https://a.org:s3cret/", "nobody to be notified"),
        ("slak://s3cret/b/c", "Apprise does not take the target slak; write a webhook"),
        ("https://hooks.slack.com/s3cret", "Apprise does not take the target hooks.slack.com"),
        ("https://a.org/#s3cret", "a.org: what follows # must be whsec_ and a secret"),
        ("https://a.org/#whsec_s3cret", "a.org: what follows # must be whsec_ and a secret"),
        ("https://a.org/#whsec_%%%s3cret", "a.org: what follows # must be whsec_ and a secret"),
    ],
)
def test_what_is_no_target_is_refused_and_not_shown(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        targets_of([url])
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://a.org/s3cret", "slack://a/b/s3cret"])
def test_a_missing_package_is_named_with_its_extra(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"not installed: pip install 'hpsearch\[notify\]'") as refused:
        targets_of([url])
    assert "s3cret" not in str(refused.value)


def test_a_webhook_is_signed_as_the_standard_says() -> None:
    with receiving() as receiver:
        signed, plain = targets_of([receiver.url("/200") + "#" + SECRET, receiver.url("/200?plain")])
        sent = notice_of_test("https://host/")
        signed.send(sent)
        (taken,) = receiver.received
        assert standardwebhooks.Webhook(SECRET).verify(taken.body, taken.headers) == sent.body
        assert {name.lower(): value for name, value in taken.headers.items()}["webhook-id"] == sent.id
        with pytest.raises(standardwebhooks.webhooks.WebhookVerificationError):
            standardwebhooks.Webhook(SECRET).verify(taken.body + b" ", taken.headers)
        receiver.answers["/200?plain"] = 200
        plain.send(sent)
        assert "webhook-signature" not in {name.lower() for name in receiver.received[1].headers}


def test_who_does_not_take_a_notice_is_said_without_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "ANSWER_SECONDS", 0.2)
    with receiving() as receiver:
        urls = [receiver.url(path) for path in ("/503", "/302", "/hang", "/200")]
        closed = "http://127.0.0.1:1/s3cret"
        tries = try_each(targets_of([*urls, closed])).to_json()["targets"]
        assert [each["error"] for each in tries] == [
            "it answered 503",
            "it answered 302, and a webhook that leads elsewhere is not followed",
            "it did not answer in time",
            None,
            "it cannot be reached (ConnectError)",
        ]
        assert receiver.types == ["test"]  # nothing came by the redirect
    assert try_each([]).targets == ()


def test_a_chat_gets_the_sentence(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    got: list[dict[str, Any]] = []
    (chat,) = targets_of(["json://127.0.0.1:1/s3cret"])
    with pytest.raises(NotSent, match="it was not taken"):
        chat.send(notice_of_test())
    assert "s3cret" not in caplog.text

    def taken(**words: Any) -> bool:
        got.append(words)
        return True

    monkeypatch.setattr(chat._service, "notify", taken)  # type: ignore[attr-defined]
    chat.send(notice_of_test("https://host/"))
    assert got == [{"body": "hpsearch can notify you here\nhttps://host/", "title": "hpsearch: test"}]


def test_a_test_ends_although_a_target_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpsearch.search.exchange.notices.trying.TEST_SECONDS", 0.2)
    with receiving() as receiver:
        began = time.monotonic()
        (tried,) = try_each(targets_of([receiver.url("/hang")])).targets
        assert tried.error == "it did not answer in time" and time.monotonic() - began < 5
