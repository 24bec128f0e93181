"""Webhooks, signed as Standard Webhooks 1.0 says: `webhook-id`, `webhook-timestamp`, `webhook-signature`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import httpx2

from ....storage.told import Notice
from .base import NotSent, Target

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0


class Webhook(Target):
    """A URL that takes notices as JSON."""

    def __init__(self, label: str, url: str, secret: bytes | None) -> None:
        """`secret`: signs what is sent; without it nothing is signed."""
        super().__init__(label)
        self._url = url
        self._secret = secret

    def send(self, notice: Notice) -> None:
        body = json.dumps(notice.body, ensure_ascii=False).encode(errors="backslashreplace")
        now = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "user-agent": "hpsearch",
            "webhook-id": notice.id,
            "webhook-timestamp": now,
        }
        if self._secret is not None:
            headers["webhook-signature"] = signature(self._secret, notice.id, now, body)
        limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        try:
            with (
                httpx2.Client(timeout=limits, follow_redirects=False) as client,
                client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                status = answer.status_code  # what it says besides is not read
        except httpx2.TimeoutException:
            raise NotSent("it did not answer in time") from None
        except (httpx2.RequestError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise NotSent(f"it cannot be reached ({type(error).__name__})") from None  # the rest has its URL
        if 300 <= status < 400:
            raise NotSent(f"it answered {status}, and a webhook that leads elsewhere is not followed")
        if status >= 400:
            raise NotSent(f"it answered {status}")


def signature(secret: bytes, id: str, timestamp: str, body: bytes) -> str:
    """The value of `webhook-signature`."""
    signed = hmac.new(secret, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"
