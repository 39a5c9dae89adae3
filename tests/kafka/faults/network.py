"""Three brokers that are reached through links that can be cut, by clients and by each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kretain.embedded import EmbeddedKafka


class Link:
    """A port before a broker's own. While it is cut nothing arrives in either direction, and nobody is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._open = asyncio.Event()
        self._pairs: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    def lead_to(self, port: int) -> None:
        """Begin to pass on what comes."""

        async def begin() -> None:
            self._open.set()
            await asyncio.start_server(lambda *ends: self._join(port, *ends), sock=self._socket)

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(60)

    def cut(self) -> None:
        """Hold back everything from now on, also what new connections bring."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self, *, lost: bool) -> None:
        """Let it arrive late, or lose it: then every connection ends."""
        if lost:
            asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._open.set)

    async def _drop(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        for end in self._pairs:
            end.transport.abort()

    async def _join(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        pumps = [asyncio.create_task(self._pump(*ends)) for ends in ((reader, back), (there, writer))]
        self._pumps.update(pumps)
        self._pairs |= {writer, back}
        await asyncio.wait(pumps)
        self._pumps.difference_update(pumps)
        self._pairs -= {writer, back}
        for end in (writer, back):
            end.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(1 << 16):
                await self._open.wait()
                sink.write(content)
                await sink.drain()
        sink.close()


class LinkedKafka(EmbeddedKafka):
    """A cluster whose brokers advertise their links."""

    def __init__(self, nodes: int, **more: Any) -> None:
        super().__init__(nodes, **more)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.links = [Link(self._loop) for _ in range(nodes)]

    @property
    def bootstrap(self) -> str:
        """The links."""
        return ",".join(f"127.0.0.1:{link.port}" for link in self.links)

    def link(self, node_id: int) -> Link:
        return self.links[node_id - 1]

    def stop(self) -> None:
        """Stop the brokers, then the links."""
        super().stop()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _properties(
        self, node_id: int, port: int, control: int, secure: int | None, voters: str, dirs: Sequence[Path]
    ) -> dict[str, str]:
        link = self.link(node_id)
        link.lead_to(port)
        own = super()._properties(node_id, port, control, secure, voters, dirs)
        return own | {"advertised.listeners": f"PLAIN://127.0.0.1:{link.port}"}
