"""``python -m bench.synthetic``: serve a synthetic cluster until standard input ends. Its address is printed."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from typing import cast

from bench.seed import Shape
from bench.synthetic.answers import Broker, Ports
from bench.synthetic.cluster import Cluster
from bench.synthetic.rows import Commits, Metadata


class _Connection(asyncio.Protocol):
    """Answers each request as it is complete, in order."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._transport.write(self._broker.answer(frame))


async def _serve(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    brokers: dict[int, Broker] = {}
    ports: Ports = []
    commits = Commits(cluster)
    for node in range(1, cluster.brokers + 1):
        server = await loop.create_server(lambda node=node: _Connection(brokers[node]), "127.0.0.1", 0)  # type: ignore[misc]
        ports.append((node, "127.0.0.1", server.sockets[0].getsockname()[1]))
    metadata = Metadata(cluster, ports)
    brokers |= {node: Broker(node, cluster, ports, commits, metadata) for node, _host, _port in ports}
    gc.freeze()
    gc.disable()
    print(json.dumps({"bootstrap": f"127.0.0.1:{ports[0][2]}"}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=json.loads, default={}, help="fields of bench.seed.Shape, as JSON")
    parser.add_argument("--number", type=int, default=0, help="which cluster it is")
    parser.add_argument("--moving", action="store_true", help="all groups commit anew between two plans")
    given = parser.parse_args()
    cluster_id = f"c3ludGhldGljLWJlbmNo{given.number:02d}"
    asyncio.run(_serve(Cluster(Shape(**given.shape), moving=given.moving, cluster_id=cluster_id)))


if __name__ == "__main__":
    main()
