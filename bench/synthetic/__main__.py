"""``python -m bench.synthetic``: serve a synthetic cluster until standard input ends. Its address is printed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import sys
from functools import partial

from bench.seed import Shape
from bench.synthetic.answers import Broker, Ports
from bench.synthetic.cluster import Cluster
from bench.synthetic.rows import Commits, Metadata


async def _answer(
    brokers: dict[int, Broker], node: int, asked: asyncio.StreamReader, told: asyncio.StreamWriter
) -> None:
    """Answer the requests of one connection in order, each once all of it has arrived."""
    with contextlib.closing(told), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            size = int.from_bytes(await asked.readexactly(4), "big")
            told.write(brokers[node].answer(await asked.readexactly(size)))


async def _serve(cluster: Cluster) -> None:
    brokers: dict[int, Broker] = {}
    ports: Ports = []
    commits = Commits(cluster)
    for node in range(1, cluster.brokers + 1):
        server = await asyncio.start_server(partial(_answer, brokers, node), "127.0.0.1", 0)
        ports.append((node, "127.0.0.1", server.sockets[0].getsockname()[1]))
    metadata = Metadata(cluster, ports)
    brokers |= {node: Broker(node, cluster, ports, commits, metadata) for node, _host, _port in ports}
    gc.freeze()
    gc.disable()
    print(json.dumps({"bootstrap": f"127.0.0.1:{ports[0][2]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


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
