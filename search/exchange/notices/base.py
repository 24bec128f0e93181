"""What a target of notices is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ....storage.told import Notice

ALLOWED = (
    "a webhook (https://host/path, with #whsec_... at its end to be signed), or what Apprise takes: "
    "slack://..., discord://..., mailto://..., ntfy://..., dbus://"
)


class NotSent(Exception):
    """A target did not take a notice; the message says why, without anything of its URL."""


class Target(ABC):
    """Somebody to be told."""

    def __init__(self, label: str) -> None:
        """`label`: what it is called, in its study too."""
        self.label = label

    @abstractmethod
    def send(self, notice: Notice) -> None:
        """Send a notice, within seconds. Raises `NotSent`."""
