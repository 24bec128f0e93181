"""Where notices go: webhooks, and what Apprise reaches. A target is named by its host alone.

Its URL may be a secret, as those of Slack are: it stands in no message, no study and no log.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from importlib.util import find_spec
from urllib.parse import urlsplit

from ...errors import UsageError
from .base import ALLOWED, Target

EXTRA = "pip install 'hpsearch[notify]'"
CHATS = ("hooks.slack.com", "discord.com", "discordapp.com")  # whose webhooks take their own messages alone
SECRET_BYTES = range(16, 129)  # of a secret; Standard Webhooks asks for 24 to 64


def targets_of(urls: Iterable[str]) -> list[Target]:
    """The targets of these URLs. Raises `UsageError` for what is none, or lacks a package."""
    found: dict[str, Target] = {}
    for url in dict.fromkeys(urls):
        label = name = _label(url)
        count = 1
        while label in found:
            count += 1
            label = f"{name} #{count}"
        found[label] = _made(url, label)
    return list(found.values())


def _made(url: str, label: str) -> Target:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and parts.hostname not in CHATS:
        if find_spec("httpx2") is None:
            raise UsageError(f"webhooks need httpx2, which is not installed: {EXTRA}", code="extra")
        from .webhook import Webhook

        return Webhook(label, url.partition("#")[0], _secret(parts.fragment, label))
    if find_spec("apprise") is None:
        raise UsageError(f"{label} needs apprise, which is not installed: {EXTRA}", code="extra")
    from .chat import Chat

    return Chat(label, url)


def _label(url: str) -> str:
    """The host of a webhook; of others the scheme, as they may have a secret where a host would be."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a ValueError where it is none
    except ValueError:
        raise _no_target() from None
    if parts.scheme in ("http", "https"):
        if not host or re.search(r"\s", url):
            raise _no_target()
        return host
    if re.fullmatch(r"[a-z][a-z0-9+.-]*", parts.scheme) and "://" in url:
        return parts.scheme
    raise _no_target()


def _secret(fragment: str, label: str) -> bytes | None:
    """The secret by which a webhook is signed; None where its URL names none."""
    if not fragment:
        return None
    try:
        encoded = fragment.removeprefix("whsec_")
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not fragment.startswith("whsec_") or len(secret) not in SECRET_BYTES:
        raise UsageError(
            f"the webhook at {label}: what follows # must be whsec_ and a secret of 24 to 64 bytes in base64",
            code="target",
        )
    return secret


def _no_target() -> UsageError:
    told = "this is nobody to be notified (it may be a secret, so it is not shown)"
    return UsageError(f"{told}; write {ALLOWED}", code="target")
