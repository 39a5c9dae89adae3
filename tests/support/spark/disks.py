"""Topics that fill disks, as far as a policy says so."""

from __future__ import annotations

import json
import os

from tests.support.volumes import RECORD, await_copies, used
from tests.support.world import DAY, MIB, World, now_ms

COUNT = 6 * MIB // RECORD


def topics_of_ages(world: World, *ages_days: int) -> list[str]:
    """Return topics of several segments on every broker, the oldest first; a group has read all of it."""
    names = []
    for days in ages_days:
        name = world.topic("disk", replicas=3, segment_bytes=str(MIB))
        first = now_ms() - days * DAY
        world.produce_at(name, [first + 1000 * n for n in range(COUNT)], value=lambda: os.urandom(RECORD), batch=20)
        world.commit(f"{name}-g", name, COUNT)
        names.append(name)

    await_copies(world, names, 5 * MIB)
    return names


def ceiling(world: World) -> list[str]:
    """A ceiling 16 MiB below what lies on each broker's disk, or at a quarter of it."""
    capacity = {f"{broker}:{path}": 2 * max(size // 4, size - 16 * MIB) for broker, (path, size) in used(world).items()}
    return ["disks:", "  log.retention.disk.usage.percent: 50", f"  capacity: {json.dumps(capacity)}"]
