"""Reset groups in a restored topic, so that each continues with the record that it would have read next.

Restored records have offsets of their own. So kretain reads the target back, record by record alongside the archive,
and derives each position from records that exist in both. It never skips a record that may be unread: where a position
is unknown, the group continues earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Final

from retention_cli.archive.positions import Behind, Continuation, Positions, Stood, gap_at, left_behind, newest, until
from retention_cli.archive.restore import Job, RestoreRefusedError, WantedGroups, check_target, restored_records
from retention_cli.archive.store import Store
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Record
from retention_cli.brokers.republisher import GroupResetter
from retention_cli.core.grouping import by_key
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import name_in_text
from retention_cli.core.progress import Progress, adding, silent
from retention_cli.core.units import timestamp

_NO_POSITION: Final = "no position that counts: begins with the first restored record"
_TRIMMED: Final = "a trim deleted what it had not read: continues there, and reads later records again"
_GONE: Final = {"gone": "was gone by then, and kretain only remembered it: name it with --group"}
_LEFT: Final = {
    "streams": "is a streams group: its state and internal topics are not in the archive",
    "share": "is a share group: set its start with kafka-share-groups.sh",
    "outside": "is outside Kafka's groups: its own tool sets its position",
}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group on a partition: its archived position, and its new offset; None: there is none, or not known yet."""

    group: str
    partition: int
    archived: int | None
    offset: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What happens to each group. ``left`` says why groups are not reset; the rest derives from ``positions``.

    ``behind`` are earlier positions, by group and partition: what followed was trimmed unread, in the log of then.
    """

    positions: Positions
    chosen: tuple[Stood, ...]
    left: Mapping[str, str]
    rows: tuple[GroupRow, ...] = ()
    behind: Mapping[tuple[str, int], Behind] = field(default_factory=dict)

    def offsets(self) -> dict[str, dict[int, int]]:
        """Return the offsets to commit, by group and partition."""
        new = by_key((row.group, (row.partition, row.offset)) for row in self.rows if row.offset is not None)
        return {group: dict(offsets) for group, offsets in new.items()}


def choose(reader: ClusterReader, store: Store, job: Job, wanted: WantedGroups) -> GroupPlan:
    """Return the groups to reset, with their archived positions, before any record is written.

    Raises:
        ArchiveError: the archive has no positions of the topic at that time.
        RestoreRefusedError: a named group has none, or a group has live members, or commits on the target.
    """
    positions = newest(store, job.source, job.wanted.until_ms if wanted.at_ms is None else wanted.at_ms)
    left, chosen, left_out = {}, [], _LEFT if wanted.names else _GONE | _LEFT
    for one in (one for one in positions.consumers if not wanted.names or one.name in wanted.names):
        why = one.unreadable or left_out.get(one.kind)
        if why is None:
            chosen.append(one)
        else:
            left[one.name] = why
    missing = [name for name in wanted.names if name not in {one.name for one in chosen}]
    if missing:
        why = left.get(missing[0]) or f"has no position on {job.wanted.topic} in the archive"
        raise RestoreRefusedError(
            f"group {name_in_text(missing[0])} {why} (positions of {timestamp(positions.read_ms)})"
        )
    covered = {number: [(one.start, one.end) for one in job.ranges.get(number, ())] for number in job.partitions}
    behind = left_behind(until(store, job.source, positions.read_ms), covered)
    rows = (_row(one, number, behind.get((one.name, number))) for one, number in product(chosen, job.partitions))
    plan = GroupPlan(positions, tuple(chosen), left, tuple(rows), behind)
    check_free(reader, job, plan, fresh=not (job.there or job.resumes))
    return plan


def _row(group: Stood, number: int, was: Behind | None) -> GroupRow:
    archived = group.offsets.get(number)
    if archived is None:
        return GroupRow(group.name, number, None, None, _NO_POSITION)
    if was is not None and was.position < archived:
        return GroupRow(group.name, number, was.position, None, _TRIMMED)
    return GroupRow(group.name, number, archived, None)


def mapped(reader: ClusterReader, store: Store, job: Job, plan: GroupPlan, progress: Progress = silent) -> GroupPlan:
    """Return the plan with the new offsets, by reading the restored records back.

    Raises:
        RestoreRefusedError: the target does not have all restored records, or a group is in use.
        ArchiveError, BrokerError: the archive or the target can't be read.
    """
    rows: list[GroupRow] = []
    on_records = adding(progress, "reading back", job.records)
    epochs = dict(enumerate(plan.positions.epochs))
    for number in job.partitions:
        some = [row for row in plan.rows if row.partition == number]
        now = Behind(0, epochs.get(number))
        of = {row: plan.behind.get((row.group, number), now).epoch for row in some}
        positions = by_key((epoch, row.archived or 0) for row, epoch in of.items())
        all_found = {epoch: Continuation({*at}, epoch, job.starts[number]) for epoch, at in positions.items()}
        others = _read_back(reader, store, job, number, [*all_found.values()], on_records)
        covered = [(segment.start, segment.end) for segment in job.ranges.get(number, ())]
        for row in some:
            at, found = row.archived or 0, all_found[of[row]]
            offsets = found.ended()
            notes = {
                "the target has other records before that: continues with the first of those": (
                    others is not None and others < offsets[at]
                ),
                _NO_POSITION: row.archived is None,
                "its position is in a log that was lost: continues where the archived log differs": (
                    at in found.other_log
                ),
                _TRIMMED: row.note == _TRIMMED,
                "the archive lacks its next record: continues after the gap": gap_at(at, covered),
                "had read all of it: continues with what is written next": at not in found.found and bool(covered),
                "nothing of it was archived: continues with what is written next": not covered,
            }
            note = next((text for text, applies in notes.items() if applies), "")
            offset = offsets[at] if others is None else min(others, offsets[at])
            rows.append(replace(row, offset=offset, note=note))
    done = replace(plan, rows=tuple(sorted(rows, key=lambda row: row.group)))
    check_free(reader, job, done)
    return done


def check_free(reader: ClusterReader, job: Job, plan: GroupPlan, *, fresh: bool = True) -> None:
    """Check that nothing reads with the groups to reset, and that none has other commits on the target.

    ``fresh``: nothing was restored yet, or the plan has its offsets: else commits on the target may be its own.

    Raises:
        RestoreRefusedError: one of them is in use.
        BrokerError: the groups can't be listed.
    """
    names = {one.name for one in plan.chosen}
    listed = [one for one in reader.list_groups(reader.brokers()) if one.name in names]
    for one in listed:
        if one.kind not in ("classic", "consumer"):
            raise RestoreRefusedError(f"group {name_in_text(one.name)} has another type in this cluster: {one.kind}")
        if one.may_have_members:
            raise RestoreRefusedError(
                f"group {name_in_text(one.name)} has live members: stop its consumers, and run the same command again"
            )
    if job.wanted.groups is None or job.wanted.groups.overwrite or not fresh:
        return
    planned = plan.offsets()
    for name, commits in committed(reader, sorted(names), job.wanted.target).items():  # a lost coordinator lists none
        if isinstance(commits, str):
            raise RestoreRefusedError(f"group {name_in_text(name)} can't be checked for commits: {commits}")
        if any(planned.get(name, {}).get(number) != offset for number, offset in commits.items()):
            raise RestoreRefusedError(
                f"group {name_in_text(name)} has commits on topic {job.wanted.target}: pass --overwrite to replace them"
            )


def committed(reader: ClusterReader, groups: Sequence[str], topic: str) -> dict[str, dict[int, int] | str]:
    """Return each group's commits on a topic by partition, or why they can't be read."""
    answers: list[GroupCommits | CommitsUnknown] = []
    if groups:
        reader.read_commits(groups, answers.append)
    return {
        one.group: one.text
        if isinstance(one, CommitsUnknown)
        else {number: offset for number, offset, _epoch in one.topics.get(topic, ())}
        | dict(one.no_position.get(topic, {}))
        for one in answers
    }


def reset(reader: ClusterReader, resetter: GroupResetter, job: Job, plan: GroupPlan) -> None:
    """Check once more, commit the plan's offsets, group by group, and read them back.

    Raises:
        RestoreRefusedError: a group is in use by now; nothing was committed.
        BrokerError: the target is another topic by now; nothing was committed. Or a group could not be reset; those
            before it are, and the same command, run again, continues.
    """
    check_free(reader, job, plan)
    check_target(reader, job)
    wanted = plan.offsets()
    for name, offsets in sorted(wanted.items()):
        resetter.reset(name, offsets)
    for name, found in committed(reader, sorted(wanted), job.wanted.target).items():
        if isinstance(found, str) or any(found.get(number) != offset for number, offset in wanted[name].items()):
            why = found if isinstance(found, str) else "it has other offsets"
            raise BrokerError(f"group {name_in_text(name)} was reset, and reads back differently: {why}")


def _read_back(
    reader: ClusterReader,
    store: Store,
    job: Job,
    number: int,
    found: Sequence[Continuation],
    on_records: Callable[[int], None],
) -> int | None:
    """Find each restored record of a partition: the archive's records, in order, among the target's.

    Return the first of the target's other records among or before them, which no group may skip, None if there is none.
    With ``--since`` alone, the target may have archived records that it leaves out; they do not count as others.
    """
    archived: Iterator[Record] = (
        record
        for segment in job.ranges.get(number, [])
        for record in restored_records(store, job.wanted, segment, segment.start, on_records)
    )
    waiting = [*islice(archived, 1)]
    if not waiting:
        return None
    tp = TopicPartition(job.wanted.target, number)
    others: int | None = None
    everything = replace(job.wanted, since_ms=job.wanted.since_ms if job.wanted.append else None)
    left_out = (
        _content(record)
        for segment in job.ranges.get(number, [])
        for record in restored_records(store, everything, segment, segment.start)
        if not job.wanted.takes(record)
    )

    def take(record: Record) -> None:
        nonlocal others
        if not waiting:
            return
        if _content(record) == _content(waiting[0]):
            for one in found:
                one.add(waiting[0].offset, waiting[0].leader_epoch, record.offset)
            waiting[:] = islice(archived, 1)
        elif others is None and _content(record) not in left_out:  # left_out continues behind the one found
            others = record.offset

    place = {tp: reader.metadata([tp.topic]).topics[tp.topic].partitions[number]}
    span = reader.extents(place, "last-stable")[tp]
    reached = span if isinstance(span, RequestFailedError) else reader.read_complete(tp, span, take)
    if isinstance(reached, RequestFailedError):
        raise BrokerError(f"{tp}: what was restored can't be read back: {reached}")
    if waiting:
        raise RestoreRefusedError(
            f"{tp} does not have the record of archived offset {waiting[0].offset:,}: restore into an empty topic "
            f"first, with retention.ms=-1 and without compaction; no group was reset"
        )
    return others


def _content(one: Record) -> tuple[object, ...]:
    return one.timestamp, one.key, one.value, one.headers
