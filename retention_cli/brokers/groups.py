"""Consumer groups of every protocol: list them, find their coordinators, and read their members' topics."""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kafka.errors import GroupAuthorizationFailedError, GroupIdNotFoundError
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import FindCoordinatorRequest

from retention_cli.brokers.errors import BrokerError, MissingApiError, RequestFailedError
from retention_cli.brokers.wire.connections import Job, Wire, ask_each, error_named
from retention_cli.core.grouping import by_key, in_batches

GroupKind = Literal["classic", "consumer", "share", "streams", "unknown"]

_KINDS: Final[dict[str, GroupKind]] = {
    "": "classic",  # brokers before 3.7 have no other kind
    "classic": "classic",
    "consumer": "consumer",
    "share": "share",
    "streams": "streams",
}
_GROUPS_A_REQUEST: Final = 100
GROUP_ID_NOT_FOUND: Final[int] = GroupIdNotFoundError.errno
_MAY_DESCRIBE: Final[dict[int | None, bool]] = {0: True, GroupAuthorizationFailedError.errno: False}
_NOT_FOUND: Final = RequestFailedError("it is listed, but the request for its type does not find it", retriable=True)
_REBALANCE_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a listing. ``state`` is "" if the broker is too old to report it."""

    name: str
    kind: GroupKind
    protocol_type: str
    state: str

    @property
    def may_have_members(self) -> bool:
        """Whether describing it could return members."""
        return self.state not in ("Empty", "Dead")


async def list_groups(wire: Wire, brokers: Iterable[int], deadline: float) -> list[ListedGroup]:
    """Return every group that the brokers list, of every type, sorted by name.

    Raises:
        BrokerError: a broker did not answer, or was still loading, until the deadline. A listing without one
            broker's groups would be incomplete (F9).
    """
    found: dict[str, ListedGroup] = {}
    for reply in await ask_each(wire, brokers, ListGroupsRequest, deadline, "list its groups"):
        for group in reply.groups:
            protocol = group.protocol_type or ""
            kind = (getattr(group, "group_type", "") or "").lower()
            if not kind and protocol in ("share", "streams"):  # a gateway that lists no types
                kind = protocol
            one = ListedGroup(
                group.group_id, _KINDS.get(kind, "unknown"), protocol, getattr(group, "group_state", "") or ""
            )
            if one.may_have_members or one.name not in found:  # two brokers may list it: one is no coordinator any more
                found[one.name] = one
    return sorted(found.values(), key=lambda group: group.name)


async def find_coordinators(
    wire: Wire, groups: Sequence[str], deadline: float
) -> tuple[dict[str, int], dict[str, RequestFailedError]]:
    """Look up each group's coordinator afresh. Return the coordinators' broker ids, and the errors of other groups."""
    found: dict[str, int] = {}
    errors: dict[str, RequestFailedError] = {}
    version, batches = await _batches(wire, groups, deadline)
    for batch in batches:
        try:
            response = await wire.ask_any(functools.partial(_coordinator_request, batch, version), deadline)
        except BrokerError as error:
            failed = RequestFailedError(
                f"its coordinator is not known: {error}", retriable=not isinstance(error, MissingApiError)
            )
            errors |= dict.fromkeys(batch, failed)
            continue
        for name, row in _rows(response, batch, version):
            why = error_named(row.error_code, row.error_message)
            if why is None and wire.coordinators is not None and row.node_id not in wire.coordinators:
                why = RequestFailedError(
                    f"broker {row.node_id} is named, but is no longer in the cluster", retriable=True
                )
            if why is not None:
                errors[name] = RequestFailedError(
                    f"its coordinator is not known: {why}", retriable=why.retriable, code=why.code
                )
            else:
                found[name] = row.node_id
    if set(found.values()) - set(wire.brokers()):
        await wire.learn_brokers()
    return found, errors


async def _batches(wire: Wire, groups: Sequence[str], deadline: float) -> tuple[int, Iterable[Sequence[str]]]:
    """Return the version of FindCoordinator that all brokers within reach have, and groups a request at a time."""
    versions = []
    for broker in wire.brokers():
        if (known := await wire.highest_version(broker, FindCoordinatorRequest.API_KEY)) is not None:
            versions.append(known)
        elif time.monotonic() > deadline:
            break
    version = min(versions, default=0)
    return version, in_batches(groups, 1000 if version >= 4 else 1)


def _rows(response: Any, batch: Sequence[str], version: int) -> Iterator[tuple[str, Any]]:
    for row in response.coordinators if version >= 4 else [response]:
        yield row.key if version >= 4 else batch[0], row


async def group_rights(
    wire: Wire, groups: Sequence[str], brokers: Iterable[int], deadline: float
) -> dict[str, set[bool | None]]:
    """Return whether this user may describe each group, existing or not, by what each broker says (F8).

    None: one has not answered for it. Where a cluster has no offsets topic yet, this creates it.
    """
    version, batches = await _batches(wire, groups, deadline)
    rights: dict[str, set[bool | None]] = {name: set() for name in groups}

    def on_reply(batch: Sequence[str], reply: Any | RequestFailedError) -> None:
        rows = () if isinstance(reply, RequestFailedError) else _rows(reply, batch, version)
        codes = {name: row.error_code for name, row in rows}
        for name in batch:
            rights[name].add(_MAY_DESCRIBE.get(codes.get(name)))

    every = list(batches)
    work = {broker: [Job(_coordinator_request(one, version), one) for one in every] for broker in brokers}
    await wire.fan_out(work, on_reply)
    return rights


def _coordinator_request(batch: Sequence[str], version: int) -> Any:
    if version >= 4:
        return FindCoordinatorRequest(key_type=0, coordinator_keys=list(batch), min_version=4)
    return FindCoordinatorRequest(key=batch[0], key_type=0, max_version=3)


@dataclass(frozen=True, slots=True)
class TopicRegex:
    """A regular expression (RE2) of a KIP-848 group: members read every topic whose complete name it matches."""

    pattern: str


MembersRead = frozenset[str | TopicRegex]
"""What a group's live members read: topics by name, and by regular expression."""


class MembersUnknownError(RequestFailedError):
    """A group whose members don't report, or don't report yet, what they read."""


OnMembers = Callable[[str, MembersRead | RequestFailedError], None]
"""Called with a group and what its live members read, or why that is unknown."""


async def describe_members(
    wire: Wire, groups: Sequence[ListedGroup], on_group: OnMembers, deadline: float, unsettled: set[str]
) -> None:
    """Call ``on_group`` with each group and the topics that its live members are assigned or subscribed to.

    During a rebalance a group does not report them; it is described again for a few seconds. A group that the call for
    its type does not find may have changed its type: it is listed again, and described by its new one (F3). Only what a
    new listing lacks was deleted, and has no members.

    ``unsettled`` are groups that an earlier call waited for in vain: this call does not wait for them until they have
    reported. It adds its own.
    """
    waiting = {group.name: group for group in groups}
    patience = min(deadline, time.monotonic() + _REBALANCE_PATIENCE_S)
    while waiting:
        late: dict[str, RequestFailedError] = {}

        def on_answer(name: str, answer: MembersRead | RequestFailedError) -> None:
            if isinstance(answer, RequestFailedError) and answer.retriable:
                late[name] = answer  # noqa: B023  (called only within this round)
            else:
                waiting.pop(name, None)
                unsettled.discard(name)
                on_group(name, answer)

        await _describe_once(wire, list(waiting.values()), on_answer, deadline)
        if lost := [name for name, answer in late.items() if answer is _NOT_FOUND]:
            try:
                listed = {group.name: group for group in await list_groups(wire, wire.brokers(), deadline)}
            except BrokerError as error:
                late |= dict.fromkeys(lost, RequestFailedError(str(error), retriable=True))
            else:
                for name in lost:
                    if name in listed:
                        waiting[name] = listed[name]
                    elif waiting.pop(name, None) is not None:
                        on_group(name, frozenset())
        if waiting and (time.monotonic() > patience or waiting.keys() <= unsettled):
            unsettled.update(waiting)
            for name in waiting:
                on_group(name, late.get(name) or RequestFailedError("was not described", retriable=True))
            return
        if waiting:
            await wire.sleep(0.25)


async def _describe_once(wire: Wire, groups: list[ListedGroup], on_answer: OnMembers, deadline: float) -> None:
    coordinators, errors = await find_coordinators(wire, [group.name for group in groups], deadline)
    for name, error in errors.items():
        on_answer(name, error)
    there = (one for one in groups if one.name in coordinators and one.kind in _TOPICS_OF)
    work = by_key(
        (broker, Job(_describe(kind, batch), (kind, batch)))
        for (broker, kind), names in by_key(((coordinators[one.name], one.kind), one.name) for one in there).items()
        for batch in in_batches(names, _GROUPS_A_REQUEST)
    )

    def on_reply(about: tuple[GroupKind, Sequence[str]], reply: Any | RequestFailedError) -> None:
        kind, names = about
        if isinstance(reply, RequestFailedError):
            for name in names:
                on_answer(name, reply)
            return
        for row in reply.groups:
            # Brokers before 3.8 call a group dead that they do not find.
            if row.error_code == GROUP_ID_NOT_FOUND or getattr(row, "group_state", "") == "Dead":
                on_answer(row.group_id, _NOT_FOUND)
            else:
                error = error_named(row.error_code, getattr(row, "error_message", None))
                on_answer(row.group_id, error or topics_of(kind, row))

    await wire.fan_out(work, on_reply)


def _rebalancing(state: str) -> RequestFailedError:
    return MembersUnknownError(f"its members' topics are unknown while it is {state}", retriable=True)


_UNDECODABLE: Final = (
    *(ValueError, struct.error, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, RecursionError, MemoryError),
)
"""Errors from decoding a member's bytes: these may be anything, and one member must not end the run (F3)."""


def classic_topics(group: Any) -> frozenset[str] | RequestFailedError:
    """Return the topics that a classic group reads: those its members subscribe to and are assigned."""
    topics: set[str] = set()
    if group.group_state != "Stable":  # only a stable group shows its members' metadata
        return _rebalancing(group.group_state)
    for member in group.members:
        silent = MembersUnknownError(f"member {member.client_id} does not show what it reads", retriable=False)
        if not member.member_metadata and not member.member_assignment:
            return silent
        try:
            if member.member_metadata:
                topics.update(ConsumerProtocolSubscription.decode(member.member_metadata).topics)
            if member.member_assignment:
                rows = ConsumerProtocolAssignment.decode(member.member_assignment).assigned_partitions
                topics.update(one.topic if hasattr(one, "topic") else one[0] for one in rows)
        except _UNDECODABLE:
            return silent
    return frozenset(topics)


def subscribed_topics(group: Any) -> MembersRead | RequestFailedError:
    """Return what a KIP-848 or a share group reads: topics that its members subscribe to, are assigned, and will be.

    Their regular expressions are included: a topic that matches is read, whether or not it is assigned yet (F2).
    """
    topics: set[str | TopicRegex] = set()
    for member in group.members:
        topics.update(member.subscribed_topic_names)
        for assignment in (member.assignment, getattr(member, "target_assignment", member.assignment)):
            topics.update(one.topic_name for one in assignment.topic_partitions)
        if regex := getattr(member, "subscribed_topic_regex", None):  # share groups have none, and no target either
            if group.group_state != "Stable":
                return _rebalancing(group.group_state)
            topics.add(TopicRegex(regex))
    return frozenset(topics)


def streams_topics(group: Any) -> frozenset[str] | RequestFailedError:
    """Return the topics that a streams group reads: the source topics of its topology."""
    if group.topology is None or group.topology.subtopologies is None:
        return _rebalancing(group.group_state)
    parts = group.topology.subtopologies
    return frozenset(
        {
            *(one.name for part in parts for one in part.repartition_source_topics),
            *(name for part in parts for name in part.source_topics),
        }
    )


_TOPICS_OF: Final[dict[GroupKind, Callable[[Any], MembersRead | RequestFailedError]]] = {
    "classic": classic_topics,
    "consumer": subscribed_topics,
    "share": subscribed_topics,
    "streams": streams_topics,
}


def topics_of(kind: GroupKind, group: Any) -> MembersRead | RequestFailedError:
    """Return the topics that a described group reads, or why they are unknown: one without members must be Empty."""
    if group.members:
        return _TOPICS_OF[kind](group)
    if group.group_state == "Empty":
        return frozenset()
    return MembersUnknownError(f"it is {group.group_state}, but its coordinator names no members", retriable=True)


def _describe(kind: GroupKind, names: Sequence[str]) -> Any:
    if kind == "classic":
        return DescribeGroupsRequest(groups=names)
    from retention_cli.brokers.wire.protocol import MESSAGES  # built from JSON, in a twentieth of a plan's start

    return MESSAGES[f"{kind.title()}GroupDescribeRequest"](group_ids=names)
