"""Find first offsets that are pending in a transaction: the answer to "all offsets" of a group omits them (F3).

Asked for a partition by name, a coordinator answers UNSTABLE_OFFSET_COMMIT. That is a request for every managed topic,
so only groups are asked whose partition of ``__consumer_offsets`` has an open transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka.errors import UnstableOffsetCommitError

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits, outcome_of, takes_batches
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import find_coordinators
from retention_cli.brokers.log_offsets import Found, Spec, list_offsets
from retention_cli.brokers.metadata import OFFSETS_TOPIC, read_metadata
from retention_cli.brokers.wire.commit_answers import Answer, request
from retention_cli.brokers.wire.connections import Job, Wire
from retention_cli.core.model import TopicPartition


async def read_pending(
    wire: Wire, groups: Sequence[str], topics: Mapping[str, int], deadline: float
) -> list[CommitsUnknown]:
    """Return the groups that have a pending offset on ``topics`` (with their partition counts), or may have one.

    The topics of each are those with offsets that a transaction may still set; None: that could not be read.

    Until the deadline (of ``time.monotonic``) transactions are waited for. Call it before the groups' commits are read:
    what is no longer pending then is in the answer to "all offsets".

    Raises:
        BrokerError: no broker answered.
    """
    waiting = {name: CommitsUnknown(name, "was not asked", None) for name in await _suspects(wire, groups, deadline)}

    def on_reply(name: str, reply: Answer | RequestFailedError) -> None:
        if (found := _judged(name, reply)) is None:
            waiting.pop(name, None)
        else:
            waiting[name] = found

    while waiting and topics:
        coordinators, errors = await find_coordinators(wire, list(waiting), deadline)
        waiting.update({name: CommitsUnknown(name, str(error), None) for name, error in errors.items()})
        work: dict[int, list[Job[str]]] = {}
        for name, broker in coordinators.items():
            sent = request([name], topics, batched=await takes_batches(wire, broker))
            work.setdefault(broker, []).append(Job(sent, name))

        await wire.fan_out(work, on_reply, in_flight=1)
        if waiting and time.monotonic() > deadline:
            break
        if waiting:
            await wire.sleep(0.25)
    return list(waiting.values()) if topics else []


def _judged(name: str, reply: Answer | RequestFailedError) -> CommitsUnknown | None:
    if isinstance(reply, RequestFailedError):
        return CommitsUnknown(name, str(reply), None)
    if len(reply.groups) != 1:
        return CommitsUnknown(name, f"its coordinator named it {len(reply.groups)} times", None)
    found, failed = outcome_of(name, reply.groups[0]), reply.groups[0].failed
    if isinstance(found, GroupCommits):
        return None
    return found if failed is None or failed[2] == UnstableOffsetCommitError.errno else replace(found, topics=None)


async def _suspects(wire: Wire, groups: Sequence[str], deadline: float) -> list[str]:
    """Return the groups on partitions of ``__consumer_offsets`` with an open transaction, or whose ends are unknown.

    Which partition has a group is not in the protocol. Kafka's rule is trusted where it names every group's coordinator
    rightly; otherwise, and where one broker leads all partitions, one open transaction makes every group a suspect.
    """
    metadata = await read_metadata(wire, [OFFSETS_TOPIC], deadline)
    leaders = metadata.places(metadata.topics)
    if not leaders:  # hidden from this user
        return list(groups)
    wanted: list[dict[TopicPartition, Spec]] = [dict.fromkeys(leaders, "latest"), dict.fromkeys(leaders, "last-stable")]
    ends, stable = await list_offsets(wire, wanted, leaders)
    unsettled = {
        tp.partition
        for tp in leaders
        if not (isinstance(end := ends[tp], Found) and isinstance(last := stable[tp], Found))
        or last.offset != end.offset
    }
    if not unsettled:
        return []
    led_by = {tp.partition: one.leader for tp, one in leaders.items()}
    partition_of = {name: coordinator_partition(name, len(leaders)) for name in groups}
    found, _ = await find_coordinators(wire, groups, deadline)
    if len(set(led_by.values())) == 1 or any(led_by[partition_of[name]] != broker for name, broker in found.items()):
        return list(groups)
    return [name for name, partition in partition_of.items() if partition in unsettled]


def coordinator_partition(group: str, count: int) -> int:
    """Return the partition of ``__consumer_offsets`` that has a group, of ``count``: its name's Java hash, unsigned.

    Kafka takes ``Math.abs`` of the hash (and 0 for -2^31), not its lower 31 bits.
    """
    value = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return min(value, 2**32 - value) % 2**31 % count
