"""Topics that fill disks, as far as a policy says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kretain.embedded import EmbeddedKafka
from tests.support.world import DAY, World, now_ms, reader_for, run_cli, wait_until

MIB = 1 << 20
RECORD = 10_000
COUNT = 6 * MIB // RECORD


def used(world: World) -> dict[int, tuple[str, int]]:
    """Each broker's dir, and its replicas' bytes."""
    found = {}
    with reader_for(world.bootstrap) as reader:
        for broker, dirs in reader.log_dirs(reader.brokers()).items():
            assert not isinstance(dirs, Exception)
            [one] = dirs
            found[broker] = (one.path, sum(replica.size_bytes for replica in one.replicas))
    return found


def topics_of_ages(world: World, *ages_days: int) -> list[str]:
    """Return topics of several segments on every broker, the oldest first; a group has read all of it."""
    names = []
    for days in ages_days:
        name = world.topic("disk", replicas=3, segment_bytes=str(MIB))
        first = now_ms() - days * DAY
        stamps = [first + 1000 * n for n in range(COUNT)]
        world.produce_at(name, stamps, value=lambda: os.urandom(RECORD), batch=20)
        world.commit(f"{name}-g", name, COUNT)
        names.append(name)

    def copied() -> bool:
        with reader_for(world.bootstrap) as reader:
            answers = reader.log_dirs(reader.brokers())
        sizes: dict[str, set[int]] = {name: set() for name in names}
        for dirs in answers.values():
            assert not isinstance(dirs, Exception)
            for replica in dirs[0].replicas:
                if replica.tp.topic in sizes:
                    sizes[replica.tp.topic].add(replica.size_bytes)
        return all(len(one) == 1 and min(one) > 5 * MIB for one in sizes.values())

    wait_until(copied, "followers that have caught up")
    return names


def ceiling(world: World) -> list[str]:
    """A ceiling 16 MiB below what lies on each broker's disk, or at a quarter of it."""
    capacity = {f"{broker}:{path}": 2 * max(size // 4, size - 16 * MIB) for broker, (path, size) in used(world).items()}
    return ["disks:", "  log.retention.disk.usage.percent: 50", f"  capacity: {json.dumps(capacity)}"]


def inventory_of(kafka: EmbeddedKafka, folder: Path) -> Path:
    folder.mkdir()
    for node in kafka.nodes:
        out = folder / f"{node.node_id}.parquet"
        run_cli("segments", "scan", *map(str, node.log_dirs), "--out", str(out), "--no-tiered", check=0)
    return folder
