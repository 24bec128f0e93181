"""Slack, Discord, mail, the desktop and a hundred others, by Apprise."""

from __future__ import annotations

import logging

import apprise

from ....storage.told import Notice
from ...errors import UsageError
from .base import ALLOWED, NotSent, Target
from .messages import in_words

logging.getLogger("apprise").disabled = True  # it logs URLs, which are secrets


class Chat(Target):
    """A service that takes a title and a text."""

    def __init__(self, label: str, url: str) -> None:
        """Raises `UsageError` where Apprise knows no such service."""
        super().__init__(label)
        service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if service is None:
            raise UsageError(f"Apprise does not take the target {label}; write {ALLOWED}", code="target")
        self._service = service

    def send(self, notice: Notice) -> None:
        title, text = in_words(notice.body)
        try:
            taken = self._service.notify(body=text, title=title)
        except Exception as error:  # of a hundred services; their words may have a URL
            raise NotSent(f"it failed ({type(error).__name__})") from None
        if not taken:
            raise NotSent("it was not taken")
