"""The largest document that the ledger's topic can hold."""

from __future__ import annotations

import random

from retention_cli.core.model import EventMax, Sample
from retention_cli.memory.event_scan import BLOCKS_AT_MOST, Block, EventScan
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.replica import REPLICAS_AT_MOST, ReplicaSeen
from retention_cli.memory.replica import pack as pack_replicas
from retention_cli.memory.samples import SAMPLES_AT_MOST, pack
from retention_cli.state import messages

TOPIC_ID = "sq4xHpqlRAC092LVMPTfXw"


WRITTEN = messages.Written(1_800_000_000_000, 1_700_000_000_000)


def worst(seed: int) -> PartitionMemory:
    """Return as much as is ever remembered of a partition, in numbers that don't compress."""
    numbers = random.Random(seed)

    def big() -> int:
        return numbers.getrandbits(62)

    samples = [Sample(big(), big()) for _ in range(SAMPLES_AT_MOST)]
    blocks = [Block(big(), big(), big(), big(), big(), big()) for _ in range(BLOCKS_AT_MOST)]
    scan = EventScan("json:/some/long/pointer/into/a/value", big(), big(), EventMax(big(), big()), blocks, big())
    replicas = pack_replicas(ReplicaSeen(*(big() for _ in range(10))) for _ in range(REPLICAS_AT_MOST))
    data_at = tuple(big() for _ in range(8))
    return PartitionMemory(
        pack(samples),
        EventMax(big(), big()),
        data_at,
        scan.as_bytes(),
        replicas,
        leader_epoch=numbers.getrandbits(31),
        log_start=big(),
        created=True,
        created_below=big(),
        front=Front(big(), append_time=True),
    )
