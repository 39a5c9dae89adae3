"""What the ledger has of one topic, partition by partition, for people and scripts (``kretain ledger show``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import key_of, plain_name
from retention_cli.core.model import EventMax, Sample
from retention_cli.core.printable import name_in_text
from retention_cli.memory.event_scan import read_scan
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import PartitionMemory
from retention_cli.policy.model import is_pattern, matches
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.state.memories import Memories


@dataclass(frozen=True, slots=True)
class Seen:
    """A group's commit on a partition: the last one seen, and when (Unix ms). ``gone``: it no longer exists."""

    group: str
    offset: int
    seen_ms: int
    gone: bool


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of one topic id. ``scanned_to`` is how far event times were read out of records, by ``source``."""

    topic_id: str
    partition: int
    samples: int
    oldest: Sample | None
    newest: Sample | None
    event_max: EventMax | None
    source: str | None
    scanned_to: int | None
    groups: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What the ledger has of a topic, and since when the ledger exists (Unix ms)."""

    cluster_id: str
    state: str
    since_ms: int | None
    topic: str
    partitions: Sequence[PartitionView]


def show(reader: ClusterReader, memories: Memories, topic: str) -> LedgerView:
    """Return what the ledger has of today's topic of that name; if there is none, what it has of former ones.

    Raises:
        NothingMatchesError: it has nothing.
        StateError: the ledger can't be read.
        BrokerError: the cluster can't be asked.
    """
    metadata = reader.metadata([topic])
    ledger = memories.ledger(metadata.cluster_id)
    there = metadata.topics.get(topic)
    known = ledger.topics()
    ids = [one for one, (name, _) in known.items() if name == topic and (there is None or one == there.topic_id)]
    if not ids:
        raise NothingMatchesError(f"the ledger has nothing about topic {topic} yet: each plan and trim adds to it")
    groups = ledger.groups()
    rows = [
        _view(topic_id, partition, one, list(_seen(groups, topic, topic_id, partition)))
        for topic_id in sorted(ids, key=lambda one: known[one][1])
        for partition, one in ledger.partitions_of(topic_id).items()
    ]
    return LedgerView(metadata.cluster_id, memories.kind, ledger.since_ms, topic, rows)


def prune(reader: ClusterReader, memories: Memories, before_ms: int) -> tuple[int, int]:
    """Forget topics that are gone and groups, if last seen before a moment; return the number of each.

    Raises:
        StateError: the ledger can't be read or written.
        BrokerError: the cluster can't be asked.
    """
    metadata = reader.metadata()
    return memories.ledger(metadata.cluster_id).prune(before_ms, set(metadata.topic_ids.values()))


class NotRememberedError(Exception):
    """The ledger has no record of a group. Nothing was forgotten."""


@dataclass(frozen=True, slots=True)
class Held:
    """Where a consumer is remembered, and counts until it is forgotten (F6)."""

    name: str
    topics: Sequence[str]
    partitions: int


def named(ledger: Ledger, given: Sequence[str], listed: Collection[str], topic_ids: Mapping[str, str]) -> list[str]:
    """Return the groups that are named: exactly, or by a pattern, which is for those that are gone.

    ``listed`` are the keys of the groups that the cluster has. A text that is a remembered group's exact name is that
    group, and no pattern.

    Raises:
        NotRememberedError: a pattern matches no group that is gone.
        PatternError: a pattern is no regular expression.
    """
    ledger.begin(topic_ids)
    gone = [plain_name(key) for key, _seen, _rows in ledger.gone_groups(listed, 0)]
    found: dict[str, None] = {}
    for one in given:
        if _remembered(ledger, one) is not None or not is_pattern(one):
            found[one] = None
        elif some := [name for name in gone if matches((one,), name)]:
            found.update(dict.fromkeys(some))
        else:
            raise NotRememberedError(f"no group that is gone and remembered matches {one}; nothing was forgotten")
    return list(found)


def held_by(ledger: Ledger, groups: Iterable[str], topic_ids: Mapping[str, str]) -> list[Held]:
    """Return where groups are remembered, by their exact names, on topics that exist.

    Raises:
        NotRememberedError: the ledger has no record of one of them.
    """
    ledger.begin(topic_ids)
    known = {key: rows for key, _seen, rows in ledger.gone_groups((), 0)}
    found = ((name, known.get(key, {})) for name, key in _keys(ledger, groups).items())
    return [Held(name, sorted(one for one in rows if rows[one]), sum(map(len, rows.values()))) for name, rows in found]


def forget(ledger: Ledger, groups: Iterable[str]) -> list[str]:
    """Forget groups by their exact names, all or none of them; return their names.

    Raises:
        NotRememberedError: the ledger has no record of one of them.
        StateError: the ledger can't be written.
    """
    return [name for name, key in _keys(ledger, groups).items() if ledger.forget_group(key)]


def _keys(ledger: Ledger, groups: Iterable[str]) -> dict[str, str]:
    keys = {name: _remembered(ledger, name) for name in dict.fromkeys(groups)}
    if unknown := [name for name, key in keys.items() if key is None]:
        raise NotRememberedError(
            f"kretain remembers no group {', '.join(map(name_in_text, unknown))}; nothing was forgotten"
        )
    return {name: key for name, key in keys.items() if key is not None}


def _remembered(ledger: Ledger, name: str) -> str | None:
    """Return the key under which a group is remembered, or a consumer outside Kafka's groups (F7); None for neither."""
    kind, colon, rest = name.partition(":")
    keys = [key for key in ((name, key_of(kind, rest)) if colon else (name,)) if ledger.remembers_group(key)]
    if len(keys) > 1:
        raise NotRememberedError(f"{name} is both a group and another consumer; write group:{name} for the group")
    if not keys and kind == "group" and ledger.remembers_group(rest):
        keys = [rest]
    return keys[0] if keys else None


def _view(topic_id: str, partition: int, one: PartitionMemory, groups: Sequence[Seen]) -> PartitionView:
    samples, scan = one.samples, read_scan(one.scan)
    largest = [found for found in (one.newest, None if scan is None else scan.newest) if found is not None]
    return PartitionView(
        topic_id=topic_id,
        partition=partition,
        samples=len(samples),
        oldest=samples[0] if samples else None,
        newest=samples[-1] if samples else None,
        event_max=max(largest, key=lambda found: found.rank, default=None),
        source=None if scan is None else scan.source,
        scanned_to=None if scan is None else scan.end,
        groups=groups,
    )


def _seen(groups: dict[str, GroupMemory], topic: str, topic_id: str, partition: int) -> Iterator[Seen]:
    for name, group in groups.items():
        if group.ids.get(topic) != topic_id:
            continue
        place = (topic, partition)
        if (position := group.open.get(place) or group.counted.get(place)) is not None:
            yield Seen(plain_name(name), position.offset, group.seen_ms, gone=False)
        elif (gone := group.gone.get(place)) is not None:
            yield Seen(plain_name(name), gone.offset, gone.seen_ms, gone=True)
