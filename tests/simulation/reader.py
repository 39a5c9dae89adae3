"""The simulated cluster behind the engine's own interface that reads; records come as the client library gives them.

Each answer is made when the request is carried out; before it, others may act.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import Message

from retention_cli.brokers import groups, log_offsets, records
from retention_cli.brokers.errors import RequestFailedError, SchemaError
from retention_cli.brokers.log_offsets import Found, Leaders, NotFound, OpenTransaction
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata, PartitionMetadata, TopicConfig, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.schemas import Kind, SchemaRegistry
from retention_cli.brokers.security.settings import ConnectionSettings, RegistrySettings
from retention_cli.core.consumers import key_of
from retention_cli.core.json_values import at
from retention_cli.core.model import TopicPartition
from retention_cli.observe.floors import outside
from retention_cli.observe.floors.sources.interface import Consumer, Reach, SourceError
from retention_cli.policy.live import POLICY_TOPIC
from retention_cli.policy.settings import FloorSource
from tests.simulation.clients import LATE, SimClock
from tests.simulation.kafka import BROKERS, NO_STAMP, Partition, Record, Replica, SimKafka, offsets_partition
from tests.simulation.wire import SimWire

_RECORDS_A_FETCH = 3


def message_of(topic: str, record: Record) -> Message:
    """Return a record as confluent-kafka gives it."""
    header = record.header
    told = (header or b"").decode("ascii", "replace")
    return Message(
        topic,
        offset=record.offset,
        value=f'{{"et": {told if told.isdigit() else json.dumps(told)}}}'.encode(),
        headers=None if header is None else [("et", header)],
        timestamp=(0 if record.stamp == NO_STAMP else 2 if record.append_time else 1, record.stamp),
        leader_epoch=record.epoch,
    )


_READ_SOURCES: Final = outside.read_sources


def _read_sources(sources: Sequence[FloorSource], reach: Reach) -> list[outside.Read]:
    """Read files through the simulated reader, where it is a simulated operator who reads."""
    reader: Any = reach.reader
    if not isinstance(reader, SimReader):
        return _READ_SOURCES(sources, reach)
    return [reader.read_outside(one) for one in sources]


outside.read_sources = _read_sources


def later(work: Callable[[], Any]) -> Any:
    """Return work that is done when it is waited for."""
    return SimpleNamespace(result=lambda _timeout_s=None: work())


def ready(value: Any) -> Any:
    """Return work that is done already."""
    return later(lambda: value)


class Schemas(SchemaRegistry):
    """A registry whose schemas say what :meth:`Message.value` writes."""

    def __init__(self, kafka: SimKafka) -> None:
        super().__init__(RegistrySettings("http://simulated"))
        self._kafka = kafka

    def value(self, kind: Kind, raw: bytes | None, path: Sequence[str]) -> Any:
        if self._kafka.lose("schema"):
            raise SchemaError("schema 1, which could not be fetched from http://simulated: it answered HTTP 503")
        try:
            return at(json.loads(raw or b"{}"), path)
        except (ValueError, LookupError):  # not the number that it says
            return None


class SimReader(ClusterReader):
    """What one kretain reads by. It has no connections: its ``wire`` answers what is asked about groups, and no more."""

    def __init__(self, kafka: SimKafka, clock: SimClock) -> None:
        self.settings = ConnectionSettings("simulated:9092")
        self.timeout_s = 5.0
        self.clock = clock
        self.on_commits: Callable[[str], None] = lambda _group: None
        self.on_ends: Callable[[tuple[str, int]], None] = lambda _tp: None
        self.on_list: Callable[[], None] = lambda: None
        self._kafka = kafka
        self._configs_asked = 0
        self.wire: Any = SimWire(kafka, self)
        self._unsettled = set[str]()
        self.schemas = Schemas(kafka)

    def _lost(self, call: str) -> RequestFailedError | None:
        """Carry out a request; return the error where it got lost."""
        self._kafka.pause(call)
        return RequestFailedError(f"{call}: timed out", retriable=True) if self._kafka.lose(call) else None

    def _ask(self, call: str) -> None:
        if (lost := self._lost(call)) is not None:
            raise lost

    # -- the cluster ---------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None = None, only: Mapping[str, Container[int]] | None = None
    ) -> ClusterMetadata:
        self._ask("metadata")
        wanted = None if topics is None else set(topics)
        found = {
            name: TopicMetadata(
                name,
                topic.topic_id,
                internal=False,
                partitions={
                    n: PartitionMetadata(one.leader, one.epoch, tuple(one.replicas))
                    for n, one in enumerate(topic.partitions)
                    if only is None or n in only.get(name, ())
                },
            )
            for name, topic in self._kafka.topics.items()
            if wanted is None or name in wanted
        }
        if not self._kafka.offsets_hidden and (wanted is None or OFFSETS_TOPIC in wanted):
            leaders = {n: PartitionMetadata(*one) for n, one in enumerate(self._kafka.offsets_leaders)}
            found[OFFSETS_TOPIC] = TopicMetadata(OFFSETS_TOPIC, "offsets", internal=True, partitions=leaders)
        if wanted is not None and POLICY_TOPIC in wanted:
            place = {0: PartitionMetadata(BROKERS[0], 0)}
            found[POLICY_TOPIC] = TopicMetadata(POLICY_TOPIC, "policy", internal=False, partitions=place)
        return ClusterMetadata(self._kafka.cluster_id, frozenset(BROKERS), found)

    def agree(self, brokers: frozenset[int]) -> bool:
        del brokers
        return True

    def metadata_of_each(self, brokers: Iterable[int], topics: Sequence[str]) -> list[ClusterMetadata]:
        del brokers
        return [self.metadata(topics)]

    def may_describe_cluster(self, brokers: Iterable[int], patience_s: float | None = None) -> bool:
        del brokers, patience_s
        self._ask("may_describe_cluster")
        return self._kafka.may_describe

    def hidden_topic(self, brokers: Iterable[int], topics: Iterable[str]) -> None:
        del brokers, topics

    def topic_configs_soon(
        self, topics: Sequence[str], patience_s: float | None = None, brokers: Iterable[int] | None = None
    ) -> Any:
        """Answer every other request when it is waited for: groups have been read by then."""
        self._kafka.pause("topic_configs")
        self._configs_asked += 1
        return later(lambda: self._configs(topics)) if self._configs_asked % 2 else ready(self._configs(topics))

    def _configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | RequestFailedError]:
        known = {name: self._kafka.topics[name] for name in topics}
        return {
            name: TopicConfig(
                frozenset({"delete"}),
                -1,
                "LogAppendTime" if one.append_time else "CreateTime",
                one.storage == "tiered",
                one.storage == "diskless",
            )
            for name, one in known.items()
        }

    # -- groups ----------------------------------------------------------------------

    def _deadline(self, patience_s: float | None = None) -> float:
        return self._kafka.elapsed_s + (self.timeout_s if patience_s is None else patience_s)

    def list_groups(self, brokers: Iterable[int], patience_s: float | None = None) -> list[groups.ListedGroup]:
        listed = super().list_groups(sorted(brokers), patience_s)
        self.on_list()
        return listed

    def group_rights(self, names: Sequence[str], brokers: Iterable[int]) -> dict[str, set[bool | None]]:
        self._ask("group_rights")
        return super().group_rights(names, brokers)

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        return {}  # they are only told

    def read_outside(self, source: FloorSource) -> outside.Read:
        """Read the file of a consumer outside Kafka's groups (F7); without a position it is cut short, or gone."""
        name = key_of(source.kind, source.name)
        if (lost := self._lost("read_outside")) is not None:
            return SourceError(str(lost))
        group = self._kafka.groups.get(name)
        if group is None or not group.commits:
            return SourceError("it is empty: was it cut short?")
        self.on_commits(name)
        rows: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), (offset, _epoch) in sorted(group.commits.items()):
            rows.setdefault(topic, []).append((partition, offset))
        return {source.name: Consumer(rows)}

    # -- offsets -----------------------------------------------------------------------

    def _led(self, tp: TopicPartition, leaders: Leaders) -> Partition | RequestFailedError:
        """Return the partition, where the broker that is asked leads it in the epoch that it is asked in."""
        log, asked = self._kafka.partition(tp), leaders[tp]
        if log.leader is None or asked.leader is None:
            return RequestFailedError("it has no leader", retriable=True)
        if (log.leader, log.epoch) != (asked.leader, asked.leader_epoch):
            return RequestFailedError("FENCED_LEADER_EPOCH", retriable=True, answered=True)
        return log

    def _offset(self, log: Partition, spec: log_offsets.Spec) -> log_offsets.Answer:
        match spec:
            case "earliest":
                return Found(log.log.start)
            case "latest":
                return Found(log.high_watermark)
            case "last-stable":
                return Found(log.last_stable)
            case "max-timestamp":
                found = log.log.max_timestamp(log.high_watermark)
            case time_ms:
                found = log.log.offset_at(time_ms, log.high_watermark)
        return NotFound() if found is None else Found(found.offset, found.stamp)

    def _offsets_end(self, number: int, spec: log_offsets.Spec) -> log_offsets.Answer:
        """Return an end of a partition of the offsets topic: a transaction with an offset in it stays behind H."""
        if self._kafka.offsets_leaders[number][0] is None:
            return RequestFailedError("it has no leader", retriable=True)
        here = (one for name, one in self._kafka.groups.items() if offsets_partition(name) == number)
        return Found(1 if spec == "last-stable" and any(one.pending for one in here) else 2)

    def list_offsets_soon(self, wanted: Sequence[log_offsets.Wanted], leaders: Leaders) -> Any:
        return ready([{tp: self._listed(tp, spec, leaders) for tp, spec in one.items()} for one in wanted])

    def _listed(self, tp: TopicPartition, spec: log_offsets.Spec, leaders: Leaders) -> log_offsets.Answer:
        if (lost := self._lost(f"list_offsets {spec if isinstance(spec, str) else 'time'}")) is not None:
            return lost
        if tp.topic == POLICY_TOPIC:
            return Found(0 if spec == "earliest" else len(self._kafka.policy_messages))
        if tp.topic == OFFSETS_TOPIC:
            return self._offsets_end(tp.partition, spec)
        log = self._led(tp, leaders)
        if isinstance(log, RequestFailedError):
            return log
        if spec == "latest":
            self.on_ends((tp.topic, tp.partition))
        return self._offset(log, spec)

    def epoch_ends(
        self, wanted: Sequence[tuple[TopicPartition, int]], leaders: Leaders
    ) -> dict[tuple[TopicPartition, int], log_offsets.Answer]:
        found: dict[tuple[TopicPartition, int], log_offsets.Answer] = {}
        for tp, epoch in wanted:
            log = self._lost("epoch_ends") or self._led(tp, leaders)
            found[tp, epoch] = log if isinstance(log, RequestFailedError) else NotFound()
            if isinstance(log, Partition) and (end := log.log.epoch_end(epoch)) is not None:
                found[tp, end.epoch] = Found(end.start)  # of another epoch, where the log has nothing of that one
        return found

    def sizes_soon(self, leaders: Leaders) -> Any:
        self._kafka.pause("sizes")
        led = {tp: log for tp in leaders if (log := self._kafka.partition(tp)).leader is not None}
        return ready(({tp: 100 * len(log.log.records) for tp, log in led.items()}, None))

    def log_dirs(self, brokers: Iterable[int]) -> dict[int, Any]:
        """No broker tells of its disks: :mod:`tests.simulation.disks` has some that do."""
        return {broker: RequestFailedError("LOG_DIR_NOT_FOUND", retriable=False, answered=True) for broker in brokers}

    # -- records -----------------------------------------------------------------------

    def _answering(self, log: Partition) -> Replica:
        """Return the log of whoever answers a fetch: the leader, or one that does not know yet that it was deposed."""
        others = [one for broker, one in log.replicas.items() if broker != log.leader]
        if self._kafka.deposed and others:
            self._kafka.deposed -= 1
            return others[0]
        return log.log

    def _read(self, tp: TopicPartition, start: int, end: int) -> Iterator[Record | int | RequestFailedError]:
        """Yield data records, a few a fetch, and at last an error, or where the log ended if that is before ``end``."""
        position = start
        while True:
            if (lost := self._lost("fetch")) is not None:
                yield lost
                return
            log = self._kafka.partition(tp)
            if log.leader is None:
                yield LATE
                return
            replica, stable = self._answering(log), log.last_stable
            if not replica.start <= position <= replica.end:
                yield RequestFailedError("OFFSET_OUT_OF_RANGE", retriable=True)
                return
            there = [one for one in replica.live() if one.offset < stable and log.is_data(one)]
            some = [one for one in there if one.offset >= position][:_RECORDS_A_FETCH]
            yield from some
            if len(some) < _RECORDS_A_FETCH:
                yield min(stable, replica.end)
                return
            position = some[-1].offset + 1
            if position >= end:
                return

    def search_records(
        self, searches: Mapping[TopicPartition, records.Search], seconds: float, *, uncommitted: bool = False
    ) -> dict[TopicPartition, records.Reached | RequestFailedError]:
        return {tp: self._searched(tp, one) for tp, one in searches.items()}

    def _searched(self, tp: TopicPartition, search: records.Search) -> records.Reached | RequestFailedError:
        epochs = dict[int, int]()
        for count, one in enumerate(self._read(tp, search.start, search.end), start=1):
            if isinstance(one, RequestFailedError):
                return one
            if isinstance(one, int):
                return records.Reached(min(one, search.end), stopped=False, epochs=epochs)
            epochs[one.epoch] = one.offset
            if one.offset >= search.end:
                break
            if one.stamp >= search.time_ms:
                bound = search.start if count == 1 else one.offset
                return records.Reached(bound, stopped=False, timestamp=one.stamp, record=one.offset, epochs=epochs)
            if count >= search.limit:
                stamp = one.stamp if one.stamp >= 0 else None
                return records.Reached(one.offset + 1, stopped=True, timestamp=stamp, record=one.offset, epochs=epochs)
        return records.Reached(search.end, stopped=False, epochs=epochs)

    def _policy(
        self, tp: TopicPartition, span: records.Range, on_record: records.OnRecord
    ) -> RequestFailedError | None:
        if (lost := self._lost("fetch")) is not None:
            return lost
        for offset, (key, value, _number) in enumerate(self._kafka.policy_messages[: span.end]):
            on_record(tp, Message(offset=offset, key=key, value=value))
        return None

    def read_ranges(
        self,
        ranges: Mapping[TopicPartition, records.Range],
        deadline: float | None,
        on_record: records.OnRecord,
        *,
        scan: bool = False,
    ) -> dict[TopicPartition, RequestFailedError | None]:
        return {
            tp: None
            if span.start >= span.end
            else (self._policy if tp.topic == POLICY_TOPIC else self._range)(tp, span, on_record)
            for tp, span in ranges.items()
        }

    def _range(self, tp: TopicPartition, span: records.Range, on_record: records.OnRecord) -> RequestFailedError | None:
        for one in self._read(tp, span.start, span.end):
            if isinstance(one, RequestFailedError):
                return one
            if isinstance(one, int):
                why = f"the log was read to {one}, and returned no more"
                return RequestFailedError(why, retriable=True) if one < span.end else None
            if one.offset >= span.end or on_record(tp, message_of(tp.topic, one)) or one.offset + 1 >= span.end:
                break
        return None
