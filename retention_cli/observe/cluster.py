"""Read the facts of a cluster's partitions in the safe order (docs/architecture.md, Observe).

Metadata, commits, then S, H and L, then MAX_TIMESTAMP and time look-ups, then metadata again. Commits are read before
H, so that a commit beyond H is a leftover (F5); H before look-ups, so that "no record that young" can mean H.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, Spec
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicConfig, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.garbage import collection_paused
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, PartitionFacts, Reason, TopicFacts, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.decide.guards import untouchable
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import CommitListener, GroupReader, tell_epochs
from retention_cli.observe.floors.standing import CUT_UNKNOWN
from retention_cli.observe.lineage import EpochEnds, Reading, ask_epochs
from retention_cli.observe.recall import Recall, Remembered
from retention_cli.observe.request import Observation, Pass, Request, Times
from retention_cli.observe.times import read_times, with_lookups
from retention_cli.policy.settings import GroupRules, Settings

START_MARGIN_MS: Final = 10 * 60_000
"""How much a client's clock may be behind ours that reckons where its group starts (``groups.start``, F2)."""
_AGAIN_AFTER_S: Final = 0.5
_NOT_READ_YET: Final = Unknown.because("metadata", "not read yet")
_CUT_OFF: Final = Reason(
    "metadata", "brokers name different brokers, so one may be cut off from the controllers: run again"
)
_NEVER_READ: Final = Unknown.because(Code.G5, "never trimmed, so not read")


def observe(
    reader: ClusterReader, request: Request, progress: Progress = silent, listener: CommitListener | None = None
) -> Observation:
    """Read the facts of all managed partitions.

    A partition whose topic id, leader or leader epoch differs between the two metadata reads, or whose leader
    can't be asked, is read again: at least once, and while patience lasts. After that it is unknown.

    Raises:
        BrokerError: the cluster's metadata could not be read at all.
    """
    with collection_paused():
        deadline = reader.clock.monotonic() + (reader.timeout_s if request.patience_s is None else request.patience_s)
        reading = _Reading(reader, request, progress, listener)
        result = reading.read(deadline)
        attempts = 1
        while reading.unsettled and request.prepared is None and (attempts == 1 or reader.clock.monotonic() < deadline):
            reader.clock.sleep(_AGAIN_AFTER_S)
            attempts += 1
            again = reading.unsettled
            reading = _Reading(reader, request, progress, again=again)
            result = _merged(result, reading.read(deadline), again)
        return replace(result, facts=dict(sorted(result.facts.items())))


def _merged(first: Observation, newer: Observation, again: Collection[TopicPartition]) -> Observation:
    """Replace facts by those that were read again. A partition that was deleted meanwhile is unknown."""
    facts = {
        tp: newer.facts[tp]._replace(size_bytes=first.facts[tp].size_bytes)
        if tp in newer.facts
        else ends_unknown(first.facts[tp], Unknown.because("metadata", "the topic was deleted while it was read"))
        for tp in again
    }
    return replace(
        first,
        facts={**first.facts, **facts},
        leaders={**first.leaders, **newer.leaders},
        epoch_ends={**first.epoch_ends, **newer.epoch_ends},
        passes=(*first.passes, *newer.passes),
        read_in={**first.read_in, **dict.fromkeys(again, len(first.passes))},
        cuts={**first.cuts, **newer.cuts},
        doubts={*first.doubts, *newer.doubts},
    )


def bare_facts(topic: TopicMetadata) -> TopicFacts:
    """Return a topic's facts from metadata alone; the settings are unknown."""
    not_read = Unknown.because(Code.G5, "the topic's settings were not read")
    no_id = Unknown.because(
        "topic-id", "the cluster gives no topic id, so kretain cannot detect a recreated topic (brokers before 2.8?)"
    )
    return TopicFacts(topic.name, topic.topic_id or no_id, topic.internal, not_read, not_read)


def configured(topic: TopicFacts, config: TopicConfig | RequestFailedError | None) -> TopicFacts:
    """Return the facts with the live settings; ``config`` is None if they were not read."""
    if config is None:
        return topic
    if isinstance(config, RequestFailedError):
        unknown = Unknown.because(Code.G5, f"the topic's settings could not be read: {config}")
        return replace(topic, cleanup_policy=unknown, retention_ms=unknown, timestamp_type=unknown)
    return replace(
        topic,
        cleanup_policy=config.cleanup_policy,
        retention_ms=config.retention_ms,
        timestamp_type=config.timestamp_type
        or Unknown.because("topic-settings", "the broker does not report message.timestamp.type"),
        tiered=config.tiered,
        diskless=config.diskless,
    )


def never_touched(topic: TopicFacts, settings: Settings) -> bool:
    """Return whether there is nothing to decide about the topic (G5), as far as its facts are known."""
    return isinstance(untouchable(topic, settings), Reason)


def end_of(name: str, answer: Answer) -> Maybe[int]:
    """Return the offset in a leader's answer, unknown if there is none. ``name`` is for the reason's text."""
    if isinstance(answer, Found):
        return answer.offset
    error = answer if isinstance(answer, RequestFailedError) else "the broker reports none"
    return Unknown.because("offsets", f"the {name} could not be read: {error}")


def ends_unknown(facts: PartitionFacts, why: Unknown) -> PartitionFacts:
    """Return the facts of a partition that can't be decided: its log's ends are unknown."""
    return facts._replace(log_start=why, high_watermark=why, last_stable_offset=why)


def unread_facts(
    topic: TopicFacts,
    partition: int,
    place: PartitionMetadata,
    why: Unknown,
    ends: tuple[Maybe[int], Maybe[int], Maybe[int]] | None = None,
) -> PartitionFacts:
    """Return a partition's facts from metadata, and its log's ``ends`` (S, H and L) if these were read.

    ``why`` is the reason that all others are unknown.
    """
    log_start, high_watermark, last_stable_offset = ends or (why, why, why)
    return PartitionFacts(
        topic=topic,
        partition=partition,
        log_start=log_start,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        floor=why,
        size_bytes=why,
        has_leader=place.leader is not None,
        leader_epoch=place.leader_epoch,
    )


def change_between(
    tp: TopicPartition, topic_id: str | None, before: PartitionMetadata, after: TopicMetadata | None
) -> Reason | None:
    """Return how two metadata reads of a partition differ, None if they agree (M1).

    Args:
        tp: the partition.
        topic_id: its topic's id in the first read.
        before: its leader and leader epoch in the first read.
        after: its topic in the second read, None if it was deleted.
    """
    if after is None:
        return Reason("metadata", "the topic was deleted while it was read")
    if topic_id != after.topic_id:
        return Reason("metadata", "the topic was deleted and recreated while it was read")
    if (now := after.partitions.get(tp.partition)) is None:
        return Reason("metadata", "the partition vanished while it was read")
    if (before.leader, before.leader_epoch) != (now.leader, now.leader_epoch):
        return Reason("metadata", "the leader changed each time the partition was read: run again")
    return None


def by_wrong_clock(groups: GroupRules, now_ms: int) -> GroupRules:
    """Return which groups count by a clock that is wrong: it forgets none (F6, G8), and dates no start (F2)."""
    return replace(groups, remember_ms=now_ms, start=tuple((name, None) for name, _ in groups.start))


@dataclass(slots=True)
class _Reading:
    """One pass in the safe order: over all partitions, or ``again`` over some.

    Afterwards ``unsettled`` has the partitions to read again, and why: all of them, unless brokers ``agreed`` on which
    brokers exist. ``partitions`` are those that are read, ``skipped`` those of topics that are never touched.
    """

    reader: ClusterReader
    request: Request
    progress: Progress
    listener: CommitListener | None = None
    again: Collection[TopicPartition] | None = None
    unsettled: dict[TopicPartition, Reason] = field(default_factory=dict)
    agreed: bool = True
    settings: dict[str, Settings] = field(default_factory=dict)
    topics: dict[str, TopicFacts] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    skipped: dict[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    memory: Ledger = field(default_factory=lambda: Ledger(None))

    def read(self, deadline: float) -> Observation:
        reader, request, prepared = self.reader, self.request, self.request.prepared
        began = reader.clock.since_boot()
        metadata = reader.metadata() if prepared is None else prepared.metadata
        self.agreed = prepared is not None or reader.agree(metadata.brokers)
        only = request.only if self.again is None else self.again
        self._choose(metadata, only)
        configs = self._configs(metadata)
        commits_at = reader.clock.since_boot()
        if self.settings and request.memory_for is not None:  # brokers answer meanwhile
            self.memory = request.memory_for(metadata.cluster_id)
            self.memory.begin(metadata.topic_ids)
        self._sort_out(metadata, None if only is None else frozenset(only))
        floors: FloorFold | None = None if prepared is None else prepared.floors
        if floors is None and self.partitions:
            floors = self._read_floors(metadata)  # of topics that turn out to be never touched, too
        self._configure(configs())
        if floors is None or not self.partitions:  # no topic is managed, or none of them is ever touched
            return Observation(
                metadata.cluster_id,
                began,
                self._blanks(),
                self.settings,
                {},
                frozenset(metadata.topics),
                passes=[Pass(Times(began, commits_at, *[reader.clock.since_boot()] * 4))],
            )
        return self._read_logs(metadata, floors, deadline, began, commits_at)

    def _read_logs(
        self, metadata: ClusterMetadata, floors: FloorFold, deadline: float, began: float, commits_at: float
    ) -> Observation:
        """Read what the commits are compared with: the second half of the safe order. ``floors`` has the commits."""
        reader, request, leaders = self.reader, self.request, self.partitions
        sizes_soon = (
            reader.sizes_soon(leaders) if (request.decides or request.with_rows) and self.again is None else None
        )
        ends_at = reader.clock.since_boot()
        facts = self._read_ends()
        lookups_at = reader.clock.since_boot()
        ends_read_ms = request.clock_ms()
        # Those that have a leader and could be read so far are asked more about.
        answerable = {tp: one for tp, one in leaders.items() if tp not in self.unsettled and one.leader is not None}
        remembered, epoch_ends = self._prove_memory(facts, floors, answerable, ends_read_ms)
        sizes: Mapping[TopicPartition, int] = {}
        sizes_problem = None
        if sizes_soon is not None:
            self.progress("sizes on disk")
            sizes, sizes_problem = sizes_soon.result()
        self._add_floors(facts, floors, sizes, Unknown.because("size", sizes_problem or "not read"))
        self._ask_starts(floors, facts, answerable, deadline)
        remembered.recall(facts, all_samples=not request.decides)
        if request.disks is not None:
            facts = request.disks.with_disks(
                reader, facts, self.settings, leaders, metadata.cluster_id, remembered, request.clock_ms
            )
        if request.decides:
            until = None if request.scan_all else deadline
            read_times(
                Reading(reader, leaders, self.settings, remembered.partitions, request.now_ms, until, self.progress),
                facts,
                lost=self.memory.lost,
                without=self.unsettled,
            )
        self.progress("metadata, again")
        again_at = reader.clock.since_boot()
        some = request.only is not None or self.again is not None or request.prepared is not None
        numbers = {topic: frozenset(part) for topic, part in by_key(leaders).items()} if some else None  # None: all
        self._hold_changed(facts, metadata, reader.metadata(self.topics, numbers))
        done_at = reader.clock.since_boot()
        remembered.add(facts, epoch_ends)
        return Observation(
            metadata.cluster_id,
            began,
            facts | self._blanks(),
            self.settings,
            leaders,
            frozenset(metadata.topics),
            sizes_problem,
            ends_read_ms,
            epoch_ends,
            remembered.cuts,
            remembered.doubts,
            floors.gone,
            floors.rows or (),
            [Pass(Times(began, commits_at, ends_at, lookups_at, again_at, done_at), floors.all_seen())],
        )

    def _prove_memory(
        self,
        facts: Mapping[TopicPartition, PartitionFacts],
        floors: FloorFold,
        leaders: Leaders,
        ends_read_ms: int,
    ) -> tuple[Remembered, EpochEnds]:
        """Ask where leader epochs end, which proves what is remembered (M2), and tell the floors where logs were cut.

        ``leaders`` are those that can be asked.
        """
        remembered = Remembered(self.memory, self.settings, self.partitions, ends_read_ms, self.request.now_ms)
        remembered.open({name: one.topic_id for name, one in self.topics.items()})
        wanted = (*floors.epochs_to_check(), *remembered.epochs_to_check(facts), *self.request.epochs.items())
        epoch_ends = ask_epochs(self.reader, wanted, leaders)
        tell_epochs(floors, epoch_ends)
        remembered.prove(epoch_ends, facts)
        for tp, cut in remembered.cuts.items():
            floors.at(*tp).cut = (cut.offset, cut.epoch)
        for tp in remembered.doubts:
            floors.at(*tp).cut = CUT_UNKNOWN
        return remembered, epoch_ends

    def _choose(self, metadata: ClusterMetadata, only: Collection[TopicPartition] | None) -> None:
        names = metadata.topics.keys() if only is None else {tp.topic for tp in only} & metadata.topics.keys()
        for name in sorted(names):
            if (settings := self.request.settings_for(name)) is not None:
                self.settings[name] = settings
                self.topics[name] = bare_facts(metadata.topics[name])

    def _configs(self, metadata: ClusterMetadata) -> Callable[[], Mapping[str, TopicConfig | RequestFailedError]]:
        """Begin to read the settings of topics that may be touched (G5); return what waits for them."""
        if (prepared := self.request.prepared) is not None:
            return lambda: prepared.configs
        if not (topics := [name for name, topic in self.topics.items() if not self._never_touched(topic)]):
            return dict
        self.progress("topic settings")
        return self.reader.topic_configs_soon(topics, self.request.patience_s, metadata.brokers).result

    def _sort_out(self, metadata: ClusterMetadata, only: Collection[TopicPartition] | None) -> None:
        """Choose the partitions to read: topics that are never trimmed (G5) are not read."""
        for name, topic in self.topics.items():
            chosen = self.skipped if self._never_touched(topic) else self.partitions
            chosen |= {tp: one for tp, one in metadata.partitions_of([name]).items() if only is None or tp in only}

    def _configure(self, configs: Mapping[str, TopicConfig | RequestFailedError]) -> None:
        for name, topic in self.topics.items():
            self.topics[name] = configured(topic, configs.get(name))
        skipped = {name for name, topic in self.topics.items() if self._never_touched(topic)}
        for tp in [tp for tp in self.partitions if tp.topic in skipped]:
            self.skipped[tp] = self.partitions.pop(tp)

    def _never_touched(self, topic: TopicFacts) -> bool:
        """Return whether the topic is never trimmed (G5). Without look-ups nothing is decided: all topics are read."""
        return self.request.decides and never_touched(topic, self.settings[topic.name])

    def _read_floors(self, metadata: ClusterMetadata) -> FloorFold:
        scopes = {
            name: TopicScope(metadata.topics[name].leader_epochs, self.settings[name].require_groups)
            for name in {tp.topic for tp in self.partitions}
        }
        request = self.request
        groups = request.groups
        now_ms = min(request.now_ms, request.clock_ms())  # an executor's clock may be ahead (F6)
        if request.clock is not None:
            groups = by_wrong_clock(groups, now_ms)
        return GroupReader(
            self.reader,
            scopes,
            Recall(self.memory, groups, now_ms, request.clock_ms, clock_is_right=request.clock is None),
            self.progress,
            self.listener,
            with_rows=request.with_rows and self.again is None,
            with_seen=request.with_seen,
        ).read(metadata, request.patience_s, request.outside)

    def _read_ends(self) -> dict[TopicPartition, PartitionFacts]:
        self.progress("log ends")
        leaders = self.partitions
        specs: tuple[Spec, ...] = ("earliest", "latest", "last-stable")
        starts, ends, stable = self.reader.list_offsets([dict.fromkeys(leaders, spec) for spec in specs], leaders)
        return {
            tp: unread_facts(
                self.topics[tp.topic],
                tp.partition,
                place,
                _NOT_READ_YET,
                (
                    self._end(tp, "start", starts[tp]),
                    self._end(tp, "high watermark", ends[tp]),
                    self._end(tp, "last stable offset", stable[tp]),
                ),
            )
            for tp, place in leaders.items()
        }

    def _end(self, tp: TopicPartition, name: str, answer: Answer) -> Maybe[int]:
        end = end_of(name, answer)
        final = isinstance(answer, RequestFailedError) and not answer.retriable
        if isinstance(end, Unknown) and self.partitions[tp].leader is not None and not final:
            self.unsettled[tp] = end.reasons[0]
        return end

    def _add_floors(
        self,
        facts: dict[TopicPartition, PartitionFacts],
        floors: FloorFold,
        sizes: Mapping[TopicPartition, int],
        no_size: Unknown,
    ) -> None:
        watched_since_ms = self.memory.watched_since(*self.request.groups.watched, self.request.clock_ms())
        for tp, one in facts.items():
            unsized = one.topic.unsized
            facts[tp] = one._replace(
                floor=floors.floor(tp, one.log_start, one.high_watermark),
                clock=self.request.clock,
                watched_since_ms=watched_since_ms,
                size_bytes=sizes.get(tp, no_size) if unsized is None else unsized,
            )

    def _ask_starts(
        self,
        floors: FloorFold,
        facts: dict[TopicPartition, PartitionFacts],
        leaders: Mapping[TopicPartition, PartitionMetadata],
        deadline: float,
    ) -> None:
        """Look up where groups without a commit may start (``groups.start``), and fill in these floors (F2).

        A group that starts later, starts later in the log. One that starts before ``now_ms`` was asked for its members.
        """
        for back_ms, partitions in floors.starts_to_ask().items():
            time_ms = self.request.now_ms - back_ms - START_MARGIN_MS
            non_empty = {tp: facts[tp] for tp in partitions if tp in leaders and not facts[tp].empty}
            for tp, one in with_lookups(self.reader, non_empty, (time_ms,), leaders, deadline).items():
                if (found := (one.lookups or {}).get(time_ms)) is None:
                    continue
                floors.at(*tp).start_at = found if isinstance(found, Unknown) else found.offset
                facts[tp] = facts[tp]._replace(floor=floors.floor(tp, one.log_start, one.high_watermark))

    def _hold_changed(
        self, facts: dict[TopicPartition, PartitionFacts], before: ClusterMetadata, after: ClusterMetadata
    ) -> None:
        for tp, metadata in self.partitions.items():
            change = change_between(tp, before.topics[tp.topic].topic_id, metadata, after.topics.get(tp.topic))
            if (change := change if self.agreed else _CUT_OFF) is not None:
                self.unsettled[tp] = change
            if tp in self.unsettled:
                facts[tp] = ends_unknown(facts[tp], Unknown((self.unsettled[tp],)))

    def _blanks(self) -> dict[TopicPartition, PartitionFacts]:
        return {
            tp: unread_facts(self.topics[tp.topic], tp.partition, one, _NEVER_READ) for tp, one in self.skipped.items()
        }
