"""Read what protection needs: settings, required groups' positions, oldest unread records, sizes. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from retention_cli.advise.facts import TopicSettings
from retention_cli.advise.reading import LOCAL_ALONE, read_settings
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import UNNAMED, ClusterMetadata, PartitionMetadata, TopicMetadata, TopicValue
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range, Reached, Search
from retention_cli.core.consumers import group_key
from retention_cli.core.errors import hinted
from retention_cli.core.model import Code, Maybe, Reason, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import count
from retention_cli.disks.devices import all_disks
from retention_cli.disks.disk import Disk, excess_bytes
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import bare_facts, unread_facts
from retention_cli.observe.lineage import Cut, EpochEnds, ask_epochs
from retention_cli.observe.recall import Remembered
from retention_cli.policy.model import matches
from retention_cli.policy.selection import NothingMatchesError, Selection, check_matches
from retention_cli.policy.settings import UntilConsumed
from retention_cli.protect.decision import SETTINGS, Live, Rooms, Setting, TopicFacts, Unread
from retention_cli.state.own_topics import PROTECTED_TOPIC

_CHECK_MS: Final = 300_000
"""Kafka's own default, where a broker's check interval can't be read."""
_NO_SIZE: Final = Unknown.because("size", "no broker reports its size on disk")
_NOT_READ: Final = Unknown.because("protect", "not read")
_NEVER_DELETES: Final = Unknown.because("protect", "its cleanup.policy does not delete, so no record expires")
_ANY_TIME: Final = -(1 << 62)
_MOST_RECORDS: Final = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """The topics that ask for protection, the disks' room, and notes on what could not be read."""

    metadata: ClusterMetadata
    topics: Sequence[TopicFacts]
    rooms: Rooms
    notes: Sequence[Reason]


def live_of(
    values: Mapping[str, TopicValue] | RequestFailedError,
    everywhere: Mapping[str, frozenset[TopicValue]] | RequestFailedError,
) -> dict[Setting, Live] | Unknown:
    """Return both settings of a topic, unknown if either is.

    ``everywhere``: what all brokers report of kretain's own topic, which shows the default of each. While an operator
    changes the defaults broker by broker, they differ: the default is then unknown, and the smallest counts.
    """
    if isinstance(values, RequestFailedError):
        return Unknown.because("protect", str(values))
    general = {} if isinstance(everywhere, RequestFailedError) else everywhere
    live: dict[Setting, Live] = {}
    for key in SETTINGS:
        value = values.get(key, UNNAMED)
        if value.value is None:
            return Unknown.because("topic-settings", f"the brokers do not report {key}")
        shown = general.get(key, frozenset[TopicValue]())
        defaults = shown if value.own else {value, *(one for one in shown if one != UNNAMED and not one.own)}
        limits = [_limit(str(one.value)) for one in ({value} if value.own else defaults)]
        least = min((one for one in limits if one is not None), default=None)
        live[key] = Live(
            own=value.value if value.own else None,
            limit=least,
            default=_default(key, defaults),
            above=tuple(one for one in limits if one != least),
        )
    return live


def _default(key: Setting, shown: Collection[TopicValue]) -> Maybe[int | None]:
    values = [None if one.own else one.value for one in shown]
    if len(values) == 1 and values[0] is not None:
        return _limit(values[0])
    why = f"brokers have different ones, or {PROTECTED_TOPIC} has its own, or can't be read"
    return Unknown.because("protect", f"the default of {key} is unknown: {why}")


def _limit(text: str) -> int | None:
    return limit if 0 <= (limit := int(text)) < 2**63 - 1 else None


def read_protection(
    reader: ClusterReader,
    selection: Selection,
    memories: Callable[[str], Ledger],
    clock_ms: Callable[[], int],
    progress: Progress = silent,
) -> Reading:
    """Read the facts of every topic that asks for protection.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: no topic asks for it.
        StateError: the ledger can't be read.
    """
    metadata = reader.metadata()
    names = sorted(name for name, topic in metadata.topics.items() if not topic.internal)
    chosen = ((name, selection.settings_for(name)) for name in names)
    rules = {name: one.until_consumed for name, one in chosen if one is not None and one.until_consumed is not None}
    if not rules:
        check_matches(selection, names)  # a TOPIC may be misspelled
        raise hinted(
            NothingMatchesError(f"{selection.policy.source}: no entry with retention.until.consumed matches a topic"),
            "add retention.until.consumed to an entry · docs/protect.md",
        )
    progress("settings")
    limits = read_settings(reader, metadata, list(rules))
    own = reader.own_values(list(rules), SETTINGS)
    everywhere = reader.values_everywhere(PROTECTED_TOPIC, SETTINGS)
    progress("groups")
    ledger = memories(metadata.cluster_id)
    ledger.begin(metadata.topic_ids)
    found, unreadable = _unread(reader, metadata, rules, selection.policy.groups.stale_epochs, ledger)
    progress("records")
    now_ms = clock_ms()
    unread = _with_ages(reader, found, now_ms) | unreadable
    late = {
        tp: now_ms - most
        for tp, one in unread.items()
        if isinstance(one.age_ms, int) and one.age_ms > (most := rules[tp.topic].max_ms)
    }
    (answers,) = reader.list_offsets([late], metadata.partitions_of(rules))
    for tp, answer in answers.items():  # what is older than the maximum counts as read
        if isinstance(answer, Found):
            unread[tp] = replace(unread[tp], offset=max(unread[tp].offset, answer.offset))
    progress("sizes on disk")
    replicas = {tp: one.replicas for tp, one in metadata.partitions_of().items()}
    disk_rules = selection.policy.disks
    disks, notes = all_disks(dict(reader.log_dirs(reader.brokers())), replicas, disk_rules)
    topics = [
        _facts(metadata.topics[name], rule, limits[name], live_of(own[name], everywhere), unread, disks)
        for name, rule in rules.items()
    ]
    if ledger.lost is not None:  # which commits are another log's is not known, so nothing is lowered
        topics = [replace(one, unknown=ledger.lost.reasons) for one in topics]
    left = {
        one.name: one.room if isinstance(one.room, Unknown) else -excess_bytes(one.room, disk_rules.percent)
        for one in disks
    }
    return Reading(metadata, topics, Rooms(left, disk_rules.percent is not None), notes)


def _facts(
    topic: TopicMetadata,
    rule: UntilConsumed,
    limits: TopicSettings,
    live: dict[Setting, Live] | Unknown,
    unread: Mapping[TopicPartition, Unread],
    disks: Sequence[Disk],
) -> TopicFacts:
    """Return a topic's facts. A partition's size is that of its largest replica."""
    doubts = [one.reasons[0] for one in (live, limits.deletes or _NEVER_DELETES) if isinstance(one, Unknown)]
    readable = [one for one in disks if one.dirs]
    no_size = _NO_SIZE if limits.tiered is False else LOCAL_ALONE
    sizes: dict[TopicPartition, Maybe[int]] = {}
    for tp in (TopicPartition(topic.name, number) for number in sorted(topic.partitions)):
        replicas = [one.replicas[tp] for one in readable if tp in one.replicas]
        sizes[tp] = max(replicas) if replicas and limits.tiered is False else no_size
    on = {one.name: held for one in readable if (held := sum(tp in sizes for tp in one.replicas))}
    read = [size for size in sizes.values() if not isinstance(size, Unknown)]
    return TopicFacts(
        topic=topic.name,
        topic_id=topic.topic_id or "",
        rule=rule,
        live=known(live) or dict.fromkeys(SETTINGS, Live(None, None, None)),
        check_ms=_CHECK_MS if isinstance(limits.check_interval_ms, Unknown) else limits.check_interval_ms,
        unread={tp.partition: replace(unread[tp], size_bytes=size) for tp, size in sizes.items() if tp in unread},
        size_bytes=sum(read) if read else no_size,
        partitions=len(sizes),
        disks=on if read else {},
        skip=doubts[0] if doubts else None,
    )


_Commit = tuple[int, int | None]
"""A group's committed offset, and its leader epoch; None if it has none, or one that says nothing."""


def _unread(
    reader: ClusterReader,
    metadata: ClusterMetadata,
    rules: Mapping[str, UntilConsumed],
    stale_epochs: Collection[str],
    ledger: Ledger,
) -> tuple[dict[TopicPartition, Unread], dict[TopicPartition, Unread]]:
    """Return where unread records begin, and the partitions that can't be read: of these, all is unread (P3).

    Commits are read before the logs' ends. The leader epochs of ``stale_epochs`` groups say nothing (F5). The ledger
    is only read: it knows commits of other logs, and what shows that a log was cut since the last plan.
    """
    answers: list[GroupCommits | CommitsUnknown] = []
    reader.read_commits(sorted({group for rule in rules.values() for group in rule.groups}), answers.append)
    by_name, partitions = {one.group: one for one in answers}, metadata.partitions_of(rules)
    spans = reader.extents(partitions)
    remembered = {group: ledger.group(group_key("classic", group)) for group in by_name}
    commits = {
        (tp, group): _commit(by_name.get(group), group, tp, stale=matches(stale_epochs, group))
        for tp in spans
        for group in rules[tp.topic].groups
    }
    known = {(tp, group): one for (tp, group), one in commits.items() if not isinstance(one, Reason)}
    for (tp, group), one in known.items():
        if _is_other_logs(remembered[group], tp, one, metadata.topic_ids.get(tp.topic)):
            commits[tp, group] = Reason(
                Code.F5,
                f"group {group}'s offset {one[0]:,} on partition {tp.partition} is of another log, as kretain saw "
                f"earlier: it counts as having read nothing until it commits another",
            )
    others = ((tp, one[1]) for (tp, _), one in known.items() if one[1] not in (None, partitions[tp].leader_epoch))
    ends = ask_epochs(reader, others, partitions)
    bare = {tp: partitions[tp] for (tp, _), (_, epoch) in known.items() if epoch is None}
    cuts = _cuts(reader, metadata, bare, spans, ledger)
    found, unreadable = {}, {}
    for tp, span in spans.items():
        groups = rules[tp.topic].groups
        if isinstance(span, RequestFailedError):
            why = Unknown.because("offsets", f"partition {tp.partition} can't be read: {span}")
            unreadable[tp] = Unread(groups[0], 0, (0, 1), why.reasons[0], why)
        else:
            now = partitions[tp].leader_epoch
            each = (_position(commits[tp, group], group, tp, span, ends, now, cuts.get(tp)) for group in groups)
            found[tp] = min(each, key=lambda one: one.offset)
    return {tp: one for tp, one in found.items() if one.offset < one.span[1]}, unreadable


def _is_other_logs(memory: GroupMemory, tp: TopicPartition, commit: _Commit, topic_id: str | None) -> bool:
    """Return whether a commit was refused, or existed before its topic was recreated, and has not changed (F5)."""
    position = (
        (memory.refused if memory.ids.get(tp.topic) in (None, topic_id) else memory.live).joined(memory.doubted).get(tp)
    )
    offset, epoch = commit
    return position is not None and position.offset == offset and (epoch is None or position.own in (None, epoch))


def _cuts(
    reader: ClusterReader,
    metadata: ClusterMetadata,
    leaders: Mapping[TopicPartition, PartitionMetadata],
    spans: Mapping[TopicPartition, Range | RequestFailedError],
    ledger: Ledger,
) -> dict[TopicPartition, Cut | Unknown]:
    """Return where logs were cut since the last plan; unknown if that can't be asked (M2, M4). Remembers nothing."""
    ids = metadata.topic_ids
    memories = {
        tp: replace(ledger.partition(tp.topic, ids[tp.topic], tp.partition)) for tp in leaders if tp.topic in ids
    }
    facts = {
        tp: unread_facts(
            bare_facts(metadata.topics[tp.topic]), tp.partition, one, _NOT_READ, (span.start, span.end, span.end)
        )
        for tp, one in leaders.items()
        if isinstance(span := spans[tp], Range) and tp in memories
    }
    there = Remembered(Ledger(None), {}, leaders, partitions={tp: memories[tp] for tp in facts})
    there.prove(ask_epochs(reader, there.epochs_to_check(facts), leaders), facts)
    return {**there.cuts, **there.doubts}


def _commit(
    answer: GroupCommits | CommitsUnknown | None, group: str, tp: TopicPartition, *, stale: bool
) -> _Commit | Reason:
    """Return a group's commit on a partition, or why there is none; ``stale``: its leader epoch says nothing."""
    if isinstance(answer, CommitsUnknown) and answer.topics is not None and tp.topic not in answer.topics:
        answer = answer.read
    if answer is None or isinstance(answer, CommitsUnknown):
        why = "no answer" if answer is None else answer.text
        return Reason(Code.F3, f"group {group}: its offsets are unknown ({why}), so it counts as having read nothing")
    for number, offset, epoch in answer.topics.get(tp.topic, ()):
        if number == tp.partition:
            return offset, None if stale else epoch
    return Reason(
        Code.F4, f"group {group} has no offset on partition {tp.partition}, so it counts as having read nothing"
    )


def _position(
    commit: _Commit | Reason,
    group: str,
    tp: TopicPartition,
    span: Range,
    ends: EpochEnds,
    now: int,
    cut: Cut | Unknown | None,
) -> Unread:
    """Return where a group stands; ``now`` is the leader epoch. What is not known counts as nothing read (P3)."""
    if isinstance(commit, Reason):
        return Unread(group, span.start, span, commit)
    note, (at, epoch) = None, commit
    end = Found(span.end) if epoch in (None, now) else ends.get((tp, epoch))
    if at > span.end:
        note = Reason(
            Code.F5,
            f"group {group}'s offset {at:,} is beyond the end of partition {tp.partition}: it belongs to another log",
        )
    elif at < span.start:
        gone = count(span.start - at, "record")
        note = Reason("protect", f"partition {tp.partition}: {gone} were deleted before group {group} read it")
    elif epoch is None and cut is not None and (isinstance(cut, Unknown) or at > cut.offset):
        note = Reason(
            Code.F5,
            f"partition {tp.partition} may have been cut since the last plan, and group {group}'s offset {at:,} has no "
            f"leader epoch: the group counts as having read nothing until the next plan",
        )
    elif not isinstance(end, Found) or at > end.offset:
        note = Reason(
            Code.F5,
            f"group {group}'s offset {at:,} on partition {tp.partition} is beyond the end of leader epoch {epoch}, or "
            f"that end can't be read: the group counts as having read nothing until it commits again (if its client "
            f"does not update the epoch: groups.stale.epochs)",
        )
    return Unread(group, at if note is None else span.start, span, note)


def _with_ages(
    reader: ClusterReader, unread: Mapping[TopicPartition, Unread], now_ms: int
) -> dict[TopicPartition, Unread]:
    """Return the partitions with how old the first unread record is; a partition without one is left out.

    An open transaction hides the records from its first on, for all who read what is committed. A broker deletes them
    all the same.
    """
    searches = {tp: Search(one.offset, one.span[1], _ANY_TIME, _MOST_RECORDS) for tp, one in unread.items()}
    found = {}
    answers = reader.search_records(searches, reader.timeout_s) if searches else {}
    hidden = {
        tp: replace(searches[tp], start=max(answer.offset, searches[tp].start))
        for tp, answer in answers.items()
        if isinstance(answer, Reached) and answer.record is None and answer.offset < searches[tp].end
    }
    if hidden:
        answers |= reader.search_records(hidden, reader.timeout_s, uncommitted=True)
    for tp, answer in answers.items():
        if isinstance(answer, Reached) and answer.timestamp is not None and answer.timestamp >= 0:
            found[tp] = replace(unread[tp], age_ms=max(0, now_ms - answer.timestamp))
        elif not isinstance(answer, Reached) or answer.record is not None:
            why = "it has no timestamp" if isinstance(answer, Reached) else str(answer)
            age = Unknown.because("protect", f"{tp}: the age of its oldest unread record is unknown: {why}")
            found[tp] = replace(unread[tp], age_ms=age, note=age.reasons[0])
    return found
