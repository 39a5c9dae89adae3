"""Read the facts of a cluster's partitions in the safe order (docs/architecture.md, Observe).

Metadata, commits, then S, H and L, then MAX_TIMESTAMP and time look-ups, then metadata again. Commits are read before
H, so that a commit beyond H is a leftover (F5); H before look-ups, so that "no record that young" can mean H.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, replace
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Leaders, Spec
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.codes import Code
from retention_cli.core.garbage import collection_paused
from retention_cli.core.model import (
    TIERED_SIZE,
    Maybe,
    PartitionFacts,
    Reason,
    TopicFacts,
    TopicPartition,
    Unknown,
)
from retention_cli.core.progress import Progress, silent
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import CommitListener, GroupReader, tell_epochs
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.lineage import ask_epochs
from retention_cli.observe.proven_reads import Reading
from retention_cli.observe.recall import Remembered
from retention_cli.observe.request import FullRead, Observation, RecheckRead, Request, SliceRead
from retention_cli.observe.times import read_times
from retention_cli.observe.topic_facts import (
    bare_facts,
    change_between,
    configured,
    end_of,
    ends_unknown,
    never_touched,
    unread_facts,
)
from retention_cli.policy.settings import Settings

_AGAIN_AFTER_S: Final = 0.5
_NOT_READ: Final = Unknown.because("offsets", "not read")
_DELETED: Final = Unknown.because("metadata", "the topic was deleted while it was read")
_NEVER_READ: Final = Unknown.because(Code.G5, "never touched, so not read")


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
        began = reader.clock.since_boot()
        patience_s = request.patience_s if isinstance(request, RecheckRead) else reader.timeout_s
        deadline = reader.clock.monotonic() + patience_s
        reading = _Reading(reader, request, progress, listener)
        result = reading.read(deadline)
        attempts = 1
        sliced = isinstance(request, SliceRead)
        while reading.unsettled and not sliced and (attempts == 1 or reader.clock.monotonic() < deadline):
            reader.clock.sleep(_AGAIN_AFTER_S)
            attempts += 1
            again = reading.unsettled
            reading = _Reading(reader, request, progress, again=again)
            result = _merged(result, reading.read(deadline), again)
        return replace(result, began=began, facts=dict(sorted(result.facts.items())))


def _merged(first: Observation, newer: Observation, again: Collection[TopicPartition]) -> Observation:
    """Replace facts by those that were read again. A partition that was deleted meanwhile is unknown."""
    facts = {tp: one for tp, one in first.facts.items() if tp not in again}
    for tp in again:
        facts[tp] = (
            newer.facts[tp]._replace(size_bytes=first.facts[tp].size_bytes)
            if tp in newer.facts
            else ends_unknown(first.facts[tp], _DELETED)
        )
    ends = {**first.epoch_ends, **newer.epoch_ends}
    return replace(
        first,
        facts=facts,
        leaders={**first.leaders, **newer.leaders},
        epoch_ends=ends,
        cuts={**first.cuts, **newer.cuts},
        doubts={*first.doubts, *newer.doubts},
    )


@dataclass(slots=True)
class _Draft:
    """One partition's facts while they are being read."""

    metadata: PartitionMetadata
    log_start: Maybe[int] = _NOT_READ
    high_watermark: Maybe[int] = _NOT_READ
    last_stable_offset: Maybe[int] = _NOT_READ


class _Reading:
    """One pass in the safe order. Afterwards ``unsettled`` has the partitions to read again, and why."""

    def __init__(
        self,
        reader: ClusterReader,
        request: Request,
        progress: Progress,
        listener: CommitListener | None = None,
        again: Collection[TopicPartition] | None = None,
    ) -> None:
        self.unsettled: dict[TopicPartition, Reason] = {}
        self._reader = reader
        self._request = request
        self._progress = progress
        self._listener = listener
        self._again = again is not None
        self._prepared = request.prepared if isinstance(request, SliceRead) else None
        self._recheck = request if isinstance(request, RecheckRead) else None
        self._patience_s = None if self._recheck is None else self._recheck.patience_s
        self._decides = isinstance(request, RecheckRead) or request.decides
        self._only = again
        if again is None and not isinstance(request, SliceRead) and request.only is not None:
            self._only = frozenset(request.only)
        self._settings: dict[str, Settings] = {}
        self._topics: dict[str, TopicFacts] = {}
        self._drafts: dict[TopicPartition, _Draft] = {}
        self._skipped: dict[TopicPartition, PartitionMetadata] = {}
        self._memory = Ledger(None)
        self._ends_read_ms = 0

    def read(self, deadline: float) -> Observation:
        began = self._reader.clock.since_boot()
        prepared = self._prepared
        metadata = self._reader.metadata() if prepared is None else prepared.metadata
        self._choose(metadata)
        configs = self._configs()
        if self._settings and self._request.memory_for is not None:  # brokers answer meanwhile
            self._memory = self._request.memory_for(metadata.cluster_id)
            self._memory.begin(metadata.topic_ids)
        self._sort_out(metadata)
        floors: FloorFold | None = None if prepared is None else prepared.floors
        if floors is None and self._drafts:
            floors = self._read_floors(metadata)  # of topics that turn out to be never touched, too
        self._configure(configs())
        if floors is None or not self._drafts:  # no topic is managed, or none of them is ever touched
            blank = {tp: self._blank(tp, one) for tp, one in self._skipped.items()}
            return Observation(metadata.cluster_id, began, blank, self._settings, {}, frozenset(metadata.topics))
        leaders: Leaders = {tp: draft.metadata for tp, draft in self._drafts.items()}
        request = self._request
        sized = self._decides or (isinstance(request, FullRead) and request.with_rows)
        sizes_soon = self._reader.sizes_soon(leaders) if sized and not self._again else None
        self._read_ends(leaders)
        remembered = Remembered(self._memory, self._settings, leaders, self._ends_read_ms, request.now_ms)
        remembered.open({name: one.topic_id for name, one in self._topics.items()})
        planned = {} if self._recheck is None else self._recheck.epochs
        wanted = (*floors.epochs_to_check(), *remembered.epochs_to_check(self._drafts), *planned.items())
        ends = ask_epochs(self._reader, wanted, self._asked(leaders))
        tell_epochs(floors, ends)
        remembered.prove(ends, self._drafts)
        for tp, cut in remembered.cuts.items():
            floors.cut_at(tp, cut.offset, cut.epoch)
        for tp in remembered.doubts:
            floors.cut_untold(tp)
        sizes: Mapping[TopicPartition, int] = {}
        sizes_problem = None
        if sizes_soon is not None:
            self._progress("sizes on disk")
            sizes, sizes_problem = sizes_soon.result()
        facts = self._facts(floors, sizes, Unknown.because("size", sizes_problem or "not read"))
        remembered.recall(facts, all_samples=not self._decides)
        if not isinstance(request, SliceRead) and request.disks is not None:
            facts = request.disks.with_disks(
                self._reader,
                facts,
                self._settings,
                leaders,
                metadata.cluster_id,
                remembered,
                request.clock_ms,
            )
        if self._decides:
            scan_all = isinstance(request, SliceRead) or (isinstance(request, FullRead) and request.scan_all)
            until = None if scan_all else deadline
            known = remembered.partitions
            reading = Reading(self._reader, leaders, self._settings, known, request.now_ms, until, self._progress)
            read_times(reading, facts, lost=self._memory.lost, without=self.unsettled)
        self._progress("metadata, again")
        facts = self._compare(facts, metadata, self._reader.metadata(self._topics, self._numbers()))
        remembered.add(facts, ends)
        facts |= {tp: self._blank(tp, one) for tp, one in self._skipped.items()}
        return Observation(
            metadata.cluster_id,
            began,
            facts,
            self._settings,
            leaders,
            frozenset(metadata.topics),
            sizes_problem,
            self._ends_read_ms,
            ends,
            remembered.cuts,
            remembered.doubts,
            floors.gone,
            floors.rows or (),
        )

    def _numbers(self) -> Mapping[str, Container[int]] | None:
        """Return the partitions to compare, by topic; None: all of them."""
        if self._only is None and self._prepared is None:
            return None
        found: dict[str, set[int]] = {}
        for topic, number in self._drafts:
            found.setdefault(topic, set()).add(number)
        return found

    def _choose(self, metadata: ClusterMetadata) -> None:
        """Choose the managed topics."""
        only = self._only
        names = metadata.topics.keys() if only is None else {tp.topic for tp in only} & metadata.topics.keys()
        for name in sorted(names):
            if (settings := self._request.settings_for(name)) is not None:
                self._settings[name] = settings
                self._topics[name] = bare_facts(metadata.topics[name])

    def _configs(self) -> Callable[[], Mapping[str, TopicConfig | RequestFailedError]]:
        """Begin to read the settings of topics that may be touched (G5); return what waits for them."""
        if (prepared := self._prepared) is not None:
            return lambda: prepared.configs
        topics = [name for name, topic in self._topics.items() if not self._never_touched(topic)]
        if not topics:
            return dict
        self._progress("topic settings")
        return self._reader.topic_configs_soon(topics, self._patience_s).result

    def _sort_out(self, metadata: ClusterMetadata) -> None:
        """Choose the partitions to read: topics that are never touched (G5) are not read."""
        for name, topic in self._topics.items():
            skipped = self._never_touched(topic)
            for index, partition in metadata.topics[name].partitions.items():
                tp = TopicPartition(name, index)
                if self._only is None or tp in self._only:
                    if skipped:
                        self._skipped[tp] = partition
                    else:
                        self._drafts[tp] = _Draft(partition)

    def _configure(self, configs: Mapping[str, TopicConfig | RequestFailedError]) -> None:
        """Fill in the topics' settings, and leave out those that by these are never touched (G5)."""
        for name, topic in self._topics.items():
            self._topics[name] = configured(topic, configs.get(name))
        skipped = {name for name, topic in self._topics.items() if self._never_touched(topic)}
        for tp in [tp for tp in self._drafts if tp.topic in skipped]:
            self._skipped[tp] = self._drafts.pop(tp).metadata

    def _never_touched(self, topic: TopicFacts) -> bool:
        """Return whether the topic is never touched (G5). Without look-ups nothing is decided: all topics are read."""
        return self._decides and never_touched(topic, self._settings[topic.name])

    def _read_floors(self, metadata: ClusterMetadata) -> FloorFold:
        scopes = {}
        for name in {tp.topic for tp in self._drafts}:
            scopes[name] = TopicScope(metadata.topics[name].leader_epochs, self._settings[name].require_groups)
        request, recheck = self._request, self._recheck
        full = request if isinstance(request, FullRead) else None
        now_ms, groups = request.clock_ms(), request.groups
        if recheck is not None and recheck.clock is not None:  # a clock that is wrong forgets no group (F6, G8)
            groups = replace(groups, remember_ms=now_ms)
        recall = Recall(self._memory, groups, now_ms)
        with_rows = full is not None and full.with_rows and not self._again
        groups_of = GroupReader(self._reader, scopes, recall, self._progress, self._listener, with_rows=with_rows)
        return groups_of.read(metadata, self._patience_s, None if full is None else full.outside)

    def _asked(self, leaders: Leaders) -> Leaders:
        """Return the partitions to ask more about: those that have a leader and could be read so far."""
        return {tp: one for tp, one in leaders.items() if tp not in self.unsettled and one.leader is not None}

    def _read_ends(self, leaders: Leaders) -> None:
        self._progress("log ends")
        drafts = self._drafts
        specs: tuple[Spec, ...] = ("earliest", "latest", "last-stable")
        starts, ends, stable = self._reader.list_offsets([dict.fromkeys(drafts, spec) for spec in specs], leaders)
        for tp, draft in drafts.items():
            draft.log_start = self._end(tp, "start", starts[tp])
            draft.high_watermark = self._end(tp, "high watermark", ends[tp])
            draft.last_stable_offset = self._end(tp, "last stable offset", stable[tp])
        self._ends_read_ms = self._request.clock_ms()

    def _end(self, tp: TopicPartition, name: str, answer: Answer) -> Maybe[int]:
        end = end_of(name, answer)
        final = isinstance(answer, RequestFailedError) and not answer.retriable
        if isinstance(end, Unknown) and self._drafts[tp].metadata.leader is not None and not final:
            self.unsettled[tp] = end.reasons[0]
        return end

    def _facts(
        self, floors: FloorFold, sizes: Mapping[TopicPartition, int], no_size: Unknown
    ) -> dict[TopicPartition, PartitionFacts]:
        return {
            tp: PartitionFacts(
                topic=self._topics[tp.topic],
                partition=tp.partition,
                log_start=draft.log_start,
                high_watermark=draft.high_watermark,
                last_stable_offset=draft.last_stable_offset,
                floor=floors.floor(tp, draft.log_start, draft.high_watermark),
                clock=None if self._recheck is None else self._recheck.clock,
                size_bytes=TIERED_SIZE if self._topics[tp.topic].tiered else sizes.get(tp, no_size),
                has_leader=draft.metadata.leader is not None,
                leader_epoch=draft.metadata.leader_epoch,
            )
            for tp, draft in self._drafts.items()
        }

    def _compare(
        self, facts: dict[TopicPartition, PartitionFacts], before: ClusterMetadata, after: ClusterMetadata
    ) -> dict[TopicPartition, PartitionFacts]:
        """Hold each partition that differs between the two metadata reads, or could not be read."""
        held = dict(facts)
        for tp in self._drafts:
            topic = before.topics[tp.topic]
            change = change_between(tp, topic.topic_id, topic.partitions[tp.partition], after.topics.get(tp.topic))
            if change is not None:
                self.unsettled[tp] = change
            if tp in self.unsettled:
                held[tp] = ends_unknown(facts[tp], Unknown((self.unsettled[tp],)))
        return held

    def _blank(self, tp: TopicPartition, partition: PartitionMetadata) -> PartitionFacts:
        return unread_facts(self._topics[tp.topic], tp.partition, partition, _NEVER_READ)
