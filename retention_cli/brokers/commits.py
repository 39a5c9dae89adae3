"""Read where groups stand: stable committed offsets, those pending in a transaction, share groups' start offsets.

The answer to "all offsets" of a group omits first offsets that are pending in a transaction (F3). Asked for a partition
by name, a coordinator answers UNSTABLE_OFFSET_COMMIT. That is a request for every managed topic, so only groups are
asked whose partition of ``__consumer_offsets`` has an open transaction.

A record that a share group (KIP-932) rejects is written to the group's dead-letter topic (KIP-1191, Kafka 4.4): by
default without its content, as a pointer to where it lies. The group's start offset has passed it by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from kafka.errors import UnstableOffsetCommitError
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import GROUP_ID_NOT_FOUND, find_coordinators
from retention_cli.brokers.log_offsets import Found, Spec, list_offsets
from retention_cli.brokers.metadata import OFFSETS_TOPIC, Values, read_metadata, read_values
from retention_cli.brokers.wire.answers import BATCHED_VERSION, Answer, Commit, GroupAnswer, request
from retention_cli.brokers.wire.connections import IN_FLIGHT, J, Job, Wire, error_named
from retention_cli.core.grouping import by_key
from retention_cli.core.model import TopicPartition

_ROWS_A_RESPONSE: Final = 20_000
"""The largest number of rows aimed at in a response: enough to be fast, few enough to take little memory."""
_TOPIC: Final = "errors.deadletterqueue.topic.name"
_COPY: Final = "errors.deadletterqueue.copy.record.enable"


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """All committed offsets of a group: its rows by topic.

    ``no_position`` has stored offsets below zero, by topic and partition: only the client knows where it starts (F1).
    """

    group: str
    topics: Mapping[str, Sequence[Commit]]
    no_position: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitsUnknown:
    """A group whose offsets could not all be read. ``topics`` are those in doubt, None: any.

    ``read`` are its commits on all topics that were read, None if none were: also where these do not say what it still
    needs. ``retriable``: asking again may succeed.
    """

    group: str
    text: str
    topics: frozenset[str] | None
    read: GroupCommits | None = None
    retriable: bool = False


OnCommits = Callable[[GroupCommits | CommitsUnknown], None]


async def read_commits(wire: Wire, groups: Iterable[str], on_group: OnCommits, deadline: float) -> None:
    """Read each group's committed offsets, and call ``on_group`` once per group, in no particular order.

    Until the deadline (of ``time.monotonic``), offsets that a pending transaction may still change are waited for
    (require_stable), and coordinators that move or load are looked up again (F3). A group that no longer exists has
    no offsets.
    """
    waiting: dict[str, CommitsUnknown] = {
        name: CommitsUnknown(name, "was not asked", None, retriable=True) for name in groups
    }
    batch_size = 16  # of the first request; then by how many rows a group has

    def jobs(names: Iterable[str], *, batched: bool) -> Iterable[Job[list[str]]]:
        left = iter(names)
        while batch := list(islice(left, batch_size if batched else 1)):
            yield Job(request(batch, batched=batched), batch)

    def on_reply(batch: list[str], reply: Answer | RequestFailedError) -> None:
        nonlocal batch_size
        if isinstance(reply, RequestFailedError):
            waiting.update((name, CommitsUnknown(name, str(reply), None, retriable=reply.retriable)) for name in batch)
            return
        for answer in reply.groups:
            found = outcome_of(batch[0] if answer.group is None else answer.group, answer)
            if isinstance(found, CommitsUnknown):
                waiting[found.group] = found
            elif waiting.pop(found.group, None) is not None:
                on_group(found)
        rows = sum(answer.rows for answer in reply.groups)
        batch_size = max(1, min(1000, _ROWS_A_RESPONSE * len(batch) // max(1, rows)))

    while waiting:
        # Few at once: these answers are the largest of all.
        waiting |= await _ask_coordinators(wire, list(waiting), jobs, on_reply, deadline, in_flight=4)
        late = time.monotonic() > deadline
        for name, failure in list(waiting.items()):
            if late or not failure.retriable:
                del waiting[name]
                on_group(failure)
        if waiting:
            await wire.sleep(0.25)


async def _ask_coordinators(
    wire: Wire,
    groups: Sequence[str],
    jobs: Callable[..., Iterable[Job[J]]],
    on_reply: Callable[[J, Any], None],
    deadline: float,
    *,
    in_flight: int = IN_FLIGHT,
) -> dict[str, CommitsUnknown]:
    """Send each coordinator its ``jobs(groups, batched=…)``; return the groups without a known coordinator.

    ``batched``: it accepts several groups in one request (3.0 and later).
    """
    coordinators, errors = await find_coordinators(wire, groups, deadline)
    work = {}
    for broker, names in by_key((broker, name) for name, broker in coordinators.items()).items():
        version = await wire.highest_version(broker, OffsetFetchRequest.API_KEY)  # None: the requests will fail, too
        work[broker] = jobs(names, batched=version is None or version >= BATCHED_VERSION)
    await wire.fan_out(work, on_reply, in_flight=in_flight)
    return {name: CommitsUnknown(name, str(one), None, retriable=one.retriable) for name, one in errors.items()}


def outcome_of(name: str, answer: GroupAnswer) -> GroupCommits | CommitsUnknown:
    """Return the commits in a coordinator's answer about a group, or why they are unknown."""
    if answer.error_code == GROUP_ID_NOT_FOUND:
        return GroupCommits(name, {})
    if (error := error_named(answer.error_code)) is not None:
        return CommitsUnknown(name, str(error), None, retriable=error.retriable)
    if not answer.failed:
        return GroupCommits(name, answer.commits, answer.no_position)
    topic, (partition, code) = next(iter(answer.failed.items()))  # it is unknown for topics with a failure alone (F3)
    error = error_named(code) or RequestFailedError("failed", retriable=True)
    commits = {topic: rows for topic, rows in answer.commits.items() if topic not in answer.failed}
    unset = {topic: rows for topic, rows in answer.no_position.items() if topic not in answer.failed}
    return CommitsUnknown(
        name,
        f"{topic}-{partition}: {error}",
        frozenset(answer.failed),
        retriable=error.retriable,
        read=GroupCommits(name, commits, unset),
    )


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
    rows = sum(topics.values())

    def on_reply(name: str, reply: Answer | RequestFailedError) -> None:
        if (found := _judged(name, reply, rows)) is None:
            waiting.pop(name, None)
        else:
            waiting[name] = found

    def jobs(names: Iterable[str], *, batched: bool) -> Iterable[Job[str]]:
        return (Job(request([name], topics, batched=batched), name) for name in names)

    while waiting and topics:
        waiting |= await _ask_coordinators(wire, list(waiting), jobs, on_reply, deadline, in_flight=1)
        if not waiting or time.monotonic() > deadline:
            break
        await wire.sleep(0.25)
    return list(waiting.values()) if topics else []


def _judged(name: str, reply: Answer | RequestFailedError, rows: int) -> CommitsUnknown | None:
    if isinstance(reply, RequestFailedError):
        return CommitsUnknown(name, str(reply), None)
    if len(reply.groups) != 1:
        return CommitsUnknown(name, f"its coordinator returned it {len(reply.groups)} times", None)
    answer = reply.groups[0]
    if not answer.error_code and answer.rows < rows:  # also where others of them failed
        return CommitsUnknown(name, f"its coordinator answered for {answer.rows} of {rows} partitions", None)
    if isinstance(found := outcome_of(name, answer), GroupCommits):
        return None
    first = next(iter(answer.failed.values()), None)
    return found if first is None or first[1] == UnstableOffsetCommitError.errno else replace(found, topics=None)


async def _suspects(wire: Wire, groups: Sequence[str], deadline: float) -> list[str]:
    """Return the groups on partitions of ``__consumer_offsets`` with an open transaction, or whose ends are unknown.

    Which partition has a group is not in the protocol. Kafka's rule is trusted where it names every group's coordinator
    rightly; otherwise, and where one broker leads all partitions, one open transaction makes every group a suspect.
    """
    metadata = await read_metadata(wire, [OFFSETS_TOPIC], deadline)
    if not (leaders := metadata.partitions_of(metadata.topics)):  # hidden from this user
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


async def read_share_offsets(wire: Wire, groups: Sequence[str], on_group: OnCommits, deadline: float) -> None:
    """Call ``on_group`` with each share group's start offsets in the shape of commits, or why they are unknown.

    A partition that the group is set up for and has not read has start offset -1: no position, with members or without
    (F2). A group whose dead letters only point into its topics has no known position there (F3). Start offsets carry no
    leader epoch: the one in the answer is that of the group's state.
    """
    from retention_cli.brokers.wire.protocol import MESSAGES

    found: dict[str, GroupCommits | CommitsUnknown] = {
        name: CommitsUnknown(name, "its coordinator is unknown", None) for name in groups
    }
    request_class = MESSAGES["DescribeShareGroupOffsetsRequest"]

    def jobs(names: Iterable[str], **_: bool) -> Iterable[Job[str]]:
        group_class = request_class.DescribeShareGroupOffsetsRequestGroup
        return (Job(request_class(groups=[group_class(group_id=name, topics=None)]), name) for name in names)

    def on_reply(name: str, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found[name] = CommitsUnknown(name, str(reply), None)
            return
        answers = [one for one in reply.groups if one.group_id == name]
        if len(answers) != 1:
            found[name] = CommitsUnknown(name, f"its coordinator named it {len(answers)} times", None)
        elif answers[0].error_code == GROUP_ID_NOT_FOUND:
            found[name] = GroupCommits(name, {})
        elif (failed := error_named(answers[0].error_code, answers[0].error_message)) is not None:
            found[name] = CommitsUnknown(name, str(failed), None)
        else:
            found[name] = _positions(name, answers[0].topics)

    found |= await _ask_coordinators(wire, groups, jobs, on_reply, deadline)
    # Behind the offsets: a letter that is written later points to what they still protect.
    read = {name: one for name, one in found.items() if isinstance(one, GroupCommits)}
    found |= {
        name: CommitsUnknown(name, text, frozenset(read[name].topics), read[name])
        for name, text in (await _pointing_letters(wire, list(read), deadline)).items()
    }
    for one in found.values():
        on_group(one)


def _positions(name: str, topics: Sequence[Any]) -> GroupCommits | CommitsUnknown:
    found: dict[str, list[Commit]] = {}
    unset: dict[str, dict[int, int]] = {}
    named = [(topic.topic_name, one.partition_index) for topic in topics for one in topic.partitions]
    if len(set(named)) < len(named) or any(number < 0 for _topic, number in named):
        return CommitsUnknown(name, "its coordinator returned a partition twice, or one below zero", None)
    for topic in topics:
        rows = found.setdefault(topic.topic_name, [])
        for one in topic.partitions:
            if (failed := error_named(one.error_code, one.error_message)) is not None:
                return CommitsUnknown(
                    name,
                    f"{topic.topic_name}-{one.partition_index}: {failed}",
                    frozenset(other.topic_name for other in topics),
                    GroupCommits(name, {}),
                )
            if one.start_offset < 0:
                unset.setdefault(topic.topic_name, {})[one.partition_index] = one.start_offset
            else:
                rows.append((one.partition_index, one.start_offset, None))
    return GroupCommits(name, found, unset)


async def _pointing_letters(wire: Wire, groups: Sequence[str], deadline: float) -> dict[str, str]:
    """Return the share groups whose dead letters point into their topics, or may do so, and why.

    Raises:
        BrokerError: no broker answered until the deadline (of ``time.monotonic``).
    """
    if not groups or not await _has_dead_letters(wire, deadline):
        return {}
    read = await read_values(wire, "group", groups, [_TOPIC, _COPY], deadline)
    return {name: text for name, values in read.items() if (text := why(values)) is not None}


def why(values: Values | RequestFailedError) -> str | None:
    """Return why a group's dead letters point into its topics, or may do so; None if they don't. Pure."""
    if isinstance(values, RequestFailedError):
        return f"whether its dead letters only point into its topics is unknown: {values}"
    if (topic := values.get(_TOPIC)) is None:
        return "whether its dead letters only point into its topics is unknown: its broker does not say"
    if not topic or values.get(_COPY) == "true":
        return None
    return (
        f"its dead letters in {topic} only point to records here ({_COPY} is false): have them copied, or list the "
        f"group under groups.ignore"
    )


async def _has_dead_letters(wire: Wire, deadline: float) -> bool:
    """Return whether the cluster's share groups can have dead letters; True where that is not said."""
    reply = await wire.ask_any(
        lambda: ApiVersionsRequest(client_software_name="kretain", client_software_version="0", min_version=3), deadline
    )
    epoch = reply.finalized_features_epoch
    if reply.error_code or epoch is None or epoch < 0:
        return True
    levels = {one.name: one.max_version_level for one in reply.finalized_features or ()}
    return bool(levels.get("share.version", 0) >= 2)  # the first level with dead letters
