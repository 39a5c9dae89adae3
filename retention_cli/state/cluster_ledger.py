"""The ledger that all operators share: the topic ``_kretain_state``, with SQLite as its cache (docs/memory.md).

Opening merges what others have written since into the cache. Saving writes the cache and, in the same transaction,
which documents have changed; then it sends these documents to the topic. So a kill loses nothing: the next run sends
what this one could not. If another kretain's document of the same key lands in between, both are merged and sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from retention_cli.audit.log import NamedLedger
from retention_cli.brokers.errors import BrokerError
from retention_cli.core.consumers import forget_hint, who
from retention_cli.core.model import Reason, Unknown
from retention_cli.core.state_dir import NotSharedError, StateError
from retention_cli.decide.guards.our_clock import MAX_SKEW_MS, apart, lag_ms
from retention_cli.memory import documents as docs
from retention_cli.memory.ages import Watched, merged
from retention_cli.memory.disk import DiskMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_rows import SEEN_AGAIN_MS
from retention_cli.memory.partition import PartitionMemory, pack
from retention_cli.policy.live import Message
from retention_cli.state import messages
from retention_cli.state.own_topics import StateTopic

_MESSAGES_AT_ONCE: Final = 2_000
_DOCUMENTS_AT_ONCE: Final = 500
_MOST_BYTES: Final = 900_000
_ROUNDS: Final = 5


class ClusterLedger(Ledger):
    """One cluster's memory, shared by all kretains with ``state: cluster``.

    ``lost`` is set if what others remember is unknown: it may be anything. ``notes`` name messages that were skipped.

    Raises:
        StateError: the cache can't be used.
    """

    def __init__(
        self,
        folder: Path,
        topic: StateTopic,
        clock_ms: Callable[[], int],
        known: NamedLedger | None = None,
        *,
        will_save: bool = True,
    ) -> None:
        self._topic = topic
        self._clock_ms = clock_ms
        self._synced = self._begun = False
        self._again: dict[str, int] = {}  # keys to know only from the topic, as others do, unless they changed since
        super().__init__(folder, known, shared=True)
        if will_save:
            topic.connect()
        try:
            topic.check()
            self._distrust_unsent()
            self._sync()
            self._synced = True
        except BrokerError as error:
            self.lost = _untold(error)
        with self._errors():
            self._forget_read()
            self.lost = self.lost or self._in_doubt()

    def close(self) -> None:
        """Close the file, and the connections to the cluster."""
        self._topic.close()
        super().close()

    # -- what is remembered ---------------------------------------------------------

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Set the cluster's current topic ids, and merge what others have written since the last pass.

        A recheck may come long after its plan: a group that another kretain has seen meanwhile, and that is gone by
        now, counts (F6). If the topic can't be read any more, ``lost`` is set.
        """
        if self._begun and self._synced:
            try:
                self._distrust_unsent()
                self._sync()
                with self._errors():
                    self.lost = self._in_doubt()
            except BrokerError as error:
                self.lost = _untold(error)
        self._begun = True
        super().begin(topic_ids)

    def remembers_group(self, name: str) -> bool:
        """Return whether anything is remembered of a group, even if it can't be read."""
        return super().remembers_group(name) or docs.GROUP + name in self._cache.unread()

    # -- writing -----------------------------------------------------------------------

    def save(self, now_ms: int) -> list[str]:
        """Write what was added, then send it to the topic; return the topic ids and groups written.

        Raises:
            NotSharedError: it is written, but could not be sent.
            StateError: it can't be written.
        """
        written = super().save(now_ms)
        if self._synced:
            self._publish()
        return written

    def forget_group(self, name: str) -> bool:
        """Forget a group at once, here and in the topic; return whether it was remembered."""
        self._require_topic()
        gone = super().forget_group(name)
        if not gone and self.remembers_group(name):
            gone = True
            with self.transaction():
                self._mark([docs.GROUP + name])
        self._publish()
        return gone

    def prune(self, before_ms: int, keep: Iterable[str] = ()) -> tuple[int, int]:
        """Forget topic ids and groups last seen before a moment, here and in the topic; return how many of each."""
        self._require_topic()
        pruned = super().prune(before_ms, frozenset(keep))
        self._publish()
        return pruned

    def _require_topic(self) -> None:
        if not self._synced and self.lost is not None:
            raise StateError(self.lost.reasons[0].text)

    def _publish(self) -> None:
        """Send what has changed until the topic's last messages include it; leave the rest to the next run.

        Groups are sent before partitions, and partitions only if that worked: a partition's later leader epoch says
        that the cut before it was handled, and the commits that the cut refuses are in the groups' documents.
        """
        try:
            with self._errors():
                in_part = not self._cache.is_current(self._meta("revision"))
            if in_part:  # where reading failed there may be messages of another version
                self._sync()
            if other := next((one.text for one in self._cache.unread().values() if one.other_version), None):
                raise NotSharedError(other)
            for _ in range(_ROUNDS):
                with self._errors():
                    waiting = list(self._cache.unsent().items())
                if not waiting:
                    return
                last = [one for one in waiting if docs.partitions_of(one[0]) is not None]
                first = [one for one in waiting if docs.partitions_of(one[0]) is None]
                lags = [
                    self._send(dict(some[start : start + _DOCUMENTS_AT_ONCE]))
                    for some in (first, last)
                    for start in range(0, len(some), _DOCUMENTS_AT_ONCE)
                ]
                noted = len(self.notes)
                if wrong := abs(lags[0]) > MAX_SKEW_MS:  # a right clock must not pass on a wrong one's times
                    self._again = dict(waiting)
                    with self.transaction():
                        self.db.execute("DELETE FROM state_topic")
                self._sync()
                with self._errors():
                    self._heads = self._stored_heads()
                if wrong:  # others discard our times, however often we send them
                    text = f"this machine's clock is {apart(lags[0])}: correct it (NTP)"
                    self.notes[noted:] = [Reason("ledger", text)]
                    return
        except BrokerError as error:
            raise NotSharedError(f"{error}; the next run sends it") from None

    def _send(self, waiting: Mapping[str, int]) -> int:
        """Append these keys' documents, or a tombstone for each that is gone; return our clock's lag (ms)."""
        with self._errors():
            found = {key: self._document(key) for key in waiting}
            written = messages.Written(self._clock_ms(), self.since_ms or 0)
        values = {key: None if one is None else messages.encode(one, written) for key, one in found.items()}
        for key, one in found.items():
            if isinstance(one, docs.GroupDocument) and len(values[key] or b"") > _MOST_BYTES:
                all_less = (messages.encode(replace(one, group=less), written) for less in one.group.smaller())
                values[key] = next(value for value in all_less if len(value) <= _MOST_BYTES)
                text = "has more commits than a message holds: once it is gone, machines that have not seen it since"
                self.notes.append(Reason("ledger", f"{who(one.name)} {text} hold all topics (F6)"))
        results = self._topic.append([(key.encode(), value) for key, value in values.items()])
        sent = {key: one for key, one in zip(values, results, strict=True) if not isinstance(one, BrokerError)}
        lag = lag_ms(written.at_ms, max((one.broker_ms or 0 for one in sent.values()), default=0), self._clock_ms())
        right = {} if abs(lag) > MAX_SKEW_MS else waiting  # others wait to be read back as others read them
        self._note_sent({key: one.offset for key, one in sent.items()}, found, right)
        if failed := [one for one in results if isinstance(one, BrokerError)]:
            raise BrokerError(f"{len(failed):,} of {len(waiting):,} messages: {failed[0]}")
        return lag

    def _note_sent(
        self, offsets: Mapping[str, int], found: Mapping[str, docs.Document | None], right: Mapping[str, int]
    ) -> None:
        """Record in the cache which of the documents that were found are in the topic now, and where.

        ``right`` are the revisions of those that need not be sent again.
        """
        with self.transaction():
            for key in offsets:
                self._cache.sent(key, right.get(key, -1))
                self._cache.read(key)
                if isinstance(document := found[key], docs.GroupDocument):
                    self._cache.saw_shared(document.name, document.group.seen_ms)
            self._cache.pass_over(list(offsets.values()))

    # -- the topic -----------------------------------------------------------------------

    def _sync(self) -> None:
        """Merge the topic's messages since the last read, or all of them if that position is unknown.

        So it is if the topic has another leader since: an election may have cut its log, which then grew past it (M1).
        Read on while there are more: a key whose message was compacted away before it was read has a later one.

        Raises:
            BrokerError: it can't be read.
        """
        for _ in range(_ROUNDS):
            if not self._read_on():
                return

    def _distrust_unsent(self) -> None:
        """Drop the times of what was written here and not sent, and read the topic from its start for earlier ones.

        No broker has stamped it, so which clock they are of is unknown. When groups were seen is kept, unless the topic
        never had it: then they may have been seen until now, and may be older than any partition (F2, F6). What the
        topic merely lacks, such as the memory of runs with ``state: local``, keeps its times.
        """
        with self._errors():
            unsent, now_ms = [key for key, revision in self._cache.unsent().items() if revision], self._clock_ms()
        if not unsent:
            return
        with self.transaction():
            for key in unsent:
                if isinstance(one := self._document(key), docs.TopicDocument):
                    undated = {(one.topic_id, n): _undated(each, now_ms) for n, each in one.partitions.items()}
                    self._put_partitions((place, each.as_bytes()) for place, each in undated.items())
                    self._ages.forget([one.topic_id] if one.widths else (), ())
                    grown = ((count, since_ms and max(since_ms, now_ms)) for count, since_ms in one.widths)
                    self._ages.merge_widths(one.topic_id, grown)
                elif isinstance(one, docs.GroupDocument) and not self._cache.shared_seen_ms(one.name):
                    late = _distrusted(one, now_ms - one.group.seen_ms, now_ms)
                    self._ages.forget((), [one.name])
                    self._merge_in(late)
                elif isinstance(one, docs.DiskDocument | Watched):
                    self._forget_up_to(key, 2**63 - 1)
                    self._cache.sent(key)
            self.db.execute("DELETE FROM state_topic")

    def _read_on(self) -> bool:
        log, there = self._topic.extent()
        with self._errors():
            position = self._cache.position(log, there.end, self._meta("revision"))
        fresh = position is None
        start = there.start if position is None else max(position, there.start)
        if start == there.end and not fresh:
            return False
        seen: set[str] = set()
        # Once at least: a topic without messages, read from its start, lacks all that the cache has.
        for first in range(start, max(start + 1, there.end), _MESSAGES_AT_ONCE):
            end = min(first + _MESSAGES_AT_ONCE, there.end)
            stored = self._topic.read(first, end) if first < end else []
            known = seen if fresh else None
            self._take_in(log, stored, end, fresh=known, first=first == start, last=end >= there.end)
        return True

    def _take_in(
        self, log: str, stored: Sequence[Message], end: int, *, fresh: set[str] | None, first: bool, last: bool
    ) -> None:
        """Merge messages into the cache, and mark the keys whose last message lacks something that the cache has."""
        latest: dict[str, docs.Document | None] = {}
        with self.transaction():
            known = self._cache.is_current(self._meta("revision"))
            if fresh is not None and first:
                self._cache.forget_other_versions()
            self.db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
            revision = self._meta("revision")
            for one in stored:
                self._take(one, latest)
            for key, document in latest.items():
                if (mine := self._document(key)) is None or (document is not None and covers(document, mine)):
                    self._cache.sent(key)
                else:
                    self._cache.mark([key], revision, 0)
            if fresh is not None:
                fresh |= latest.keys()
                if last:
                    self._cache.mark(self._all_keys() - fresh, revision, 0)
            complete = known if fresh is None else last
            self._cache.read_up_to(log, end, revision if complete else None)

    def _take(self, one: Message, latest: dict[str, docs.Document | None]) -> None:
        try:
            key = (one.key or b"").decode("utf-8")
        except UnicodeDecodeError:
            self.notes.append(Reason("ledger", f"{one.place}: its key is not text; ignored"))
            return
        if one.value is None:
            self._forget_up_to(key, one.time_ms)
            self._cache.read(key)
            latest[key] = None
            return
        try:
            document, written = messages.decode(key, one.value)
        except messages.DocumentError as error:
            self.notes.append(Reason("ledger", f"{one.place}, key {key}: {error}; ignored"))
            other_version = isinstance(error, messages.OtherVersionError)
            self._cache.not_read(key, f"{one.place}: {error}", other_version=other_version)
            if not other_version:
                latest[key] = None
            return
        self._cache.read(key)
        if document is None:
            return
        late_ms = one.time_ms - written.at_ms
        if abs(late_ms) > MAX_SKEW_MS:
            text = f"{one.place}: the clock of the machine that wrote it is {apart(late_ms)}"
            self.notes.append(Reason("ledger", f"{text}: the times in it are ignored"))
            document = _distrusted(document, late_ms, one.time_ms)
        if (sent := self._again.pop(key, None)) is not None and self._cache.unsent().get(key) == sent:
            self._forget_up_to(key, 2**63 - 1)
        self._merge_in(document)
        self.db.execute(
            "UPDATE meta SET value = ? WHERE key = 'since_ms' AND (value = 0 OR value > ?) AND ? > 0",
            (written.since_ms,) * 3,
        )
        latest[key] = document

    def _forget_up_to(self, key: str, stamp_ms: int) -> None:
        """Forget what a tombstone of this time (Unix ms) deletes, except what was seen since."""
        if (name := docs.name_in(key, docs.GROUP)) is not None:
            gone = self.db.execute("DELETE FROM groups WHERE name = ? AND seen_ms <= ?", (name, stamp_ms)).rowcount
            self._ages.forget((), [name] if gone else ())
        elif (disk := docs.name_in(key, docs.DISK)) is not None:
            if self._is_stale(disk, stamp_ms):
                self.db.execute("DELETE FROM disks WHERE name = ?", (disk,))
        elif docs.name_in(key, docs.WATCHED) is not None:
            self.db.execute("DELETE FROM about WHERE key = ?", (key,))
        elif (named := docs.partitions_of(key)) is not None:
            topic_id, numbers = named
            gone = self.db.execute(
                "DELETE FROM partitions WHERE topic_id = ? AND partition >= ? AND partition < ? AND topic_id NOT IN "
                "(SELECT topic_id FROM topics WHERE seen_ms > ?)",
                (topic_id, numbers.start, numbers.stop, stamp_ms),
            ).rowcount
            self._ages.forget([topic_id] if gone and not numbers.start else (), ())
            self.db.execute(
                "DELETE FROM topics WHERE topic_id = ? AND topic_id NOT IN (SELECT topic_id FROM partitions)",
                (topic_id,),
            )

    def _in_doubt(self) -> Unknown | None:
        """Return why the memory is in doubt: an unreadable message is all that there is of some group (F6).

        A message of another version puts it in doubt, too. Any other unreadable message of a topic only lowers its
        bounds: samples and event times are missing (G3, R2).
        """
        reasons = []
        for key, one in sorted(self._cache.unread().items()):
            name = docs.name_in(key, docs.GROUP)
            if one.other_version:
                reasons.append(Reason("ledger", one.text))
            elif name is not None and self._stored_group(name) is None:
                text = f"{one.text}; kretain remembers nothing else of {who(name)}: {forget_hint(name)}"
                reasons.append(Reason("ledger", text))
        return Unknown(tuple(reasons)) if reasons else None


def covers(theirs: docs.Document, mine: docs.Document) -> bool:
    """Return whether their document has all that ours has."""
    match theirs, mine:
        case docs.TopicDocument() as there, docs.TopicDocument() as here:
            nothing = PartitionMemory()
            known = all(there.partitions.get(n, nothing).covers(one) for n, one in here.partitions.items())
            return known and merged(here.widths, there.widths) == [*there.widths]
        case docs.GroupDocument() as there, docs.GroupDocument() as here:
            known = there.group.covers(here.group) and there.born_ms <= here.born_ms
            return known and here.group.seen_ms - there.group.seen_ms < SEEN_AGAIN_MS
        case docs.DiskDocument() as there, docs.DiskDocument() as here:
            return there.disk.covers(here.disk)
        case Watched() as there, Watched() as here:
            return there.merged(here) == there
        case _:
            return False


def _untold(error: BrokerError) -> Unknown:
    return Unknown.because("ledger", f"what is remembered of this cluster (state: cluster) is unknown: {error}")


def _distrusted(document: docs.Document, late_ms: int, now_ms: int) -> docs.Document:
    """Return a document without the times that a wrong clock spoils.

    A group's become one, later if the clock is behind by ``late_ms``. High watermarks were not seen later than
    ``now_ms``, by the brokers' clock; how far a log reached still shows whether it was cut since (M2). A group was
    first seen earlier if the clock is ahead, and a topic to have grown later if it is behind: both only hold (F2).
    """
    match document:
        case docs.TopicDocument():
            return replace(
                document,
                partitions={n: _undated(one, now_ms) for n, one in document.partitions.items()},
                widths=tuple((count, since_ms and since_ms + max(0, late_ms)) for count, since_ms in document.widths),
            )
        case docs.GroupDocument():
            seen_ms = document.group.seen_ms + max(0, late_ms)
            gone = document.group.gone.with_seen(seen_ms)
            group = replace(document.group, seen_ms=seen_ms, stood_ms=seen_ms, gone=gone)
            return replace(document, group=group, born_ms=max(0, document.born_ms + min(0, late_ms)))
        case docs.DiskDocument():
            return replace(document, disk=DiskMemory())
        case Watched():
            return replace(document, since_ms=0, last_ms=0)


def _undated(one: PartitionMemory, now_ms: int) -> PartitionMemory:
    return replace(one, packed=pack(last._replace(wall_ms=now_ms) for last in one.samples[-1:]), replicas=b"")
