"""A worker process: runs trials for the driver at the other end of its socket.

Started as `python -m hpsearch.search.backends.worker FD`. It never opens the database. It ends with the
driver: a thread reads the socket, and at its end of file ends the process and its children. Where a trial has
several processes, this worker starts the others in the same way and acts as their driver.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

from ...streams import never_refusing, open_closed
from .channel import Channel, Message
from .ranks import RankedServer, SiblingServer
from .server import PackServer, Server, leave

BEAT_SECONDS = 5.0  # between two signs of life


def _listen(channel: Channel, server: Server) -> None:
    while (messages := channel.receive()) is not None:
        for message in messages:
            server.hear(message)
    server.lose_driver()


def _beat(channel: Channel) -> None:
    """Show the driver that this process is alive."""
    while True:
        time.sleep(BEAT_SECONDS)
        try:
            channel.send({"kind": "alive"})
        except OSError:
            return  # the driver is gone, which `_listen` handles


def _server(channel: Channel, setup: Message) -> Server:
    """The server for the trials of this process."""
    if setup["pack"] > 1:
        return PackServer(channel, setup)
    if setup.get("rank"):
        return SiblingServer(channel, setup)
    if setup["processes"] > 1 and "command" not in setup["objective"]:  # it starts its own
        return RankedServer(channel, setup)
    return Server(channel, setup)


def main(descriptor: int) -> None:
    """Serve the driver until it sends `exit` or ends."""
    open_closed()
    for stream in (sys.stdout, sys.stderr):
        never_refusing(stream)
    channel = Channel(socket.socket(fileno=descriptor))
    messages: list[Message] = []
    while not messages:  # a function that travels by value arrives in several pieces
        messages = received if (received := channel.receive()) is not None else leave(1)
    setup, *early = messages
    server = _server(channel, setup)
    for message in early:
        server.hear(message)
    threading.Thread(target=_listen, args=(channel, server), daemon=True).start()
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    server.serve()
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
