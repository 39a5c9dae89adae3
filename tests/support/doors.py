"""Addresses before brokers' own: they lead elsewhere, are cut for a while, or change what passes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self


class Door:
    """A proxy, once it is started, to the broker that it is pointed at. A context manager."""

    def __init__(self, leads_to: str = "") -> None:
        self.leads_to = leads_to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = threading.Event()
        self._open.set()
        self._ends: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        _end(self._listener)

    def cut(self) -> None:
        """Hold back all data from now on, in both directions and on new connections, without closing any."""
        self._open.clear()

    def heal(self, *, lost: bool) -> None:
        """Let it arrive late, or lose it: then every connection ends."""
        if lost:
            _end(*self._ends)
        self._open.set()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self.leads_to.rpartition(":")
                try:
                    broker = socket.create_connection((host, int(port)))
                except OSError:
                    client.close()
                    continue
                self._ends |= {client, broker}
                for work in self.works(client, broker):
                    threading.Thread(target=self._until_it_ends, args=(work, client, broker), daemon=True).start()

    def _until_it_ends(self, work: Callable[[], None], *ends: socket.socket) -> None:
        with suppress(OSError):
            work()
        self._ends.difference_update(ends)
        _end(*ends)

    def works(self, client: socket.socket, broker: socket.socket) -> Sequence[Callable[[], None]]:
        """Return what each direction of a connection does until that ends."""
        return partial(self._pump, client, broker), partial(self._pump, broker, client)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        while some := source.recv(1 << 16):
            self._open.wait()
            target.sendall(some)


def _end(*sockets: socket.socket) -> None:
    """Close them, and wake the threads that wait for them."""
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
