"""What the tests do to a real cluster: topics, records, groups; and how they ask kretain about it."""

from __future__ import annotations

import itertools
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import MetadataRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, translate
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.connections import Job
from retention_cli.core.clock import SYSTEM, Clock
from retention_cli.core.model import Decision
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import Selection
from retention_cli.state.memories import Memories
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import TrimJob, carry_out, shipped
from tests.support import processes

HOUR = 3_600_000
DAY = 24 * HOUR
MINUTE = 60_000
MIB = 1 << 20
OLD = [30 * HOUR] * 10
"""The ages of ten records."""

_numbers = itertools.count(1)
T = TypeVar("T")


QUIET: Any = logging.getLogger("tests.clients")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
"""Where the tests' own clients say that a broker is gone: it is, we killed it."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


_MOVING: Final = frozenset(
    {
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE),
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  (the client's own word, of brokers that have only just come back)
    }
)


def codes(decision: Decision) -> set[str]:
    return {reason.code for reason in decision.reasons}


def texts(decision: Decision) -> str:
    return " | ".join(f"{reason.code} {reason.text}" for reason in decision.reasons)


def wait_until(ask: Callable[[], T | None], what: str, seconds: float = 60) -> T:
    """Ask until it is so, and return the answer; a test that would wait for ever fails and says for what."""
    deadline = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


@dataclass
class LateClock(Clock):
    """This machine's clock, later by what has ``passed``; ``meanwhile`` is called where somebody waits."""

    passed: list[float] = field(default_factory=list)
    meanwhile: Callable[[float], object] = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + sum(self.passed)

    since_boot = monotonic

    def sleep(self, seconds: float) -> None:
        self.meanwhile(seconds)


def skipping() -> LateClock:
    """A clock that is later by each wait, and does not wait."""
    clock = LateClock()
    clock.meanwhile = clock.passed.append
    return clock


def end_transaction(producer: Producer, *, commit: bool) -> None:
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


@contextmanager
def passing(*codes: int) -> Iterator[None]:
    """Let an error of one of these codes pass: what follows in the block is left out."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in codes:
            raise


def reader_for(
    bootstrap: str,
    timeout_s: float = 30.0,
    clock: Clock = SYSTEM,
    contexts: Mapping[str, str] | None = None,
    **settings: str,
) -> ClusterReader:
    """Return a reader of a cluster; ``contexts`` are other clusters' addresses."""

    def connection(address: str, **more: str) -> ConnectionSettings:
        given = {"bootstrap.servers": address, **{key.replace("_", "."): value for key, value in more.items()}}
        return translate({key: Setting(value, "test") for key, value in given.items()})

    def elsewhere(name: str) -> ConnectionSettings:
        return connection((contexts or {})[name])

    return ClusterReader(connection(bootstrap, **settings), timeout_s, clock, elsewhere if contexts else None)


def everywhere(bootstrap: str, name: str, so: Callable[[Any], bool]) -> bool:
    """Return whether each broker by itself says so of a topic; one that is down or frozen is not heard.

    Brokers come to know of a change one after the other, and any of them may be asked next.
    """
    said: list[bool] = []
    unknown: set[int] = set()
    with reader_for(bootstrap, 5.0) as reader:
        wire = reader.wire

        def hear(_broker: int, reply: Any) -> None:
            if not isinstance(reply, RequestFailedError):
                said.extend(so(topic) for topic in reply.topics)
                unknown.update({one.node_id for one in reply.brokers} - set(wire.brokers()))

        async def ask() -> None:
            wanted = {"topics": [MetadataRequest.MetadataRequestTopic(name=name)], "allow_auto_topic_creation": False}
            work = {broker: [Job(MetadataRequest(**wanted), broker)] for broker in wire.brokers()}
            await wire.fan_out(work, hear, timeout_s=2)

        wire.run(ask)
    return bool(said) and not unknown and all(said)


@dataclass
class World:
    bootstrap: str
    state_dir: Path
    contexts: Mapping[str, str] = field(default_factory=dict)
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": QUIET})

    # -- topics and records ------------------------------------------------

    def topic(
        self, stem: str = "t", partitions: int = 1, replicas: int = 1, name: str | None = None, **config: str
    ) -> str:
        """Make a topic of a new name, and wait until its partitions have leaders that answer."""
        name = name or f"{stem}-{next(_numbers)}-{os.getpid()}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        self.admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(60)
        self.await_leaders(name, partitions)
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(name, number): latest for number in range(partitions)}

        def led() -> bool:  # brokers name a leader before it knows of that
            errors = [one.exception(60) for one in self.admin.list_offsets(asked).values()]
            codes = [one.args[0].code() for one in errors if isinstance(one, KafkaException)]
            return KafkaError.NOT_LEADER_FOR_PARTITION not in codes

        wait_until(led, f"leaders of {name} that answer")
        return name

    def filled(
        self,
        ages_ms: Iterable[int] | int,
        read: Mapping[str, Mapping[int, int] | int] | None = None,
        each: int = 1,
        **topic: Any,
    ) -> str:
        """Make a topic with a record of each age in ``each`` partitions; ``TOPIC-NAME`` of each name has read so far."""
        made, ages = self.topic(**{"partitions": each, **topic}), ages_ms if isinstance(ages_ms, int) else [*ages_ms]
        for partition in range(each):
            self.produce(made, ages, partition)
        for name, upto in (read or {}).items():
            self.commit(f"{made}-{name}", made, dict.fromkeys(range(each), upto) if isinstance(upto, int) else upto)
        return made

    def configure(self, name: str, settings: Mapping[str, str | None], kind: ResourceType = ResourceType.TOPIC) -> None:
        """Set settings of a topic or a broker, by Kafka's names; None gives it the default again."""
        operation = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
        entries = [
            ConfigEntry(key, to or "", incremental_operation=operation[to is None]) for key, to in settings.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def settings(self, name: str, kind: ResourceType = ResourceType.TOPIC) -> dict[str, Any]:
        resource = ConfigResource(kind, name)
        return dict(self.admin.describe_configs([resource])[resource].result(60))

    def await_leaders(self, name: str, partitions: int) -> None:
        def led(topic: Any) -> bool:
            return len(topic.partitions) == partitions and all(one.leader_id >= 0 for one in topic.partitions)

        wait_until(lambda: everywhere(self.bootstrap, name, led), f"leaders of {name}")

    def delete(self, name: str) -> None:
        def gone() -> bool:
            # The client sends it again where an answer is late.
            with passing(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID):
                self.admin.delete_topics([name])[name].result(60)
            return everywhere(self.bootstrap, name, lambda one: not one.partitions)

        wait_until(gone, f"end of {name}")

    def renew(self, topic: str) -> None:
        self.delete(topic)
        self.topic(name=topic)

    def groups(self) -> set[str]:
        with reader_for(self.bootstrap) as reader:
            return {one.name for one in reader.list_groups(reader.brokers())}

    def produce(
        self,
        topic: str,
        ages_ms: Iterable[int] | int,
        partition: int = 0,
        value: bytes = b"x" * 100,
        compression: str = "none",
    ) -> int:
        """Append a record of each age (or so many of age zero); return the next offset."""
        base = now_ms()
        ages = [0] * ages_ms if isinstance(ages_ms, int) else list(ages_ms)
        return self.produce_at(topic, [base - age for age in ages], partition, value, compression)

    def produce_at(
        self,
        topic: str,
        stamps_ms: Sequence[int],
        partition: int = 0,
        value: bytes | Callable[[], bytes] = b"x" * 100,
        compression: str = "none",
        batch: int = 10_000,
        headers: Callable[[int], Any] | None = None,
    ) -> int:
        """Append a record of each timestamp, in order, so many a batch at the most."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": compression,
                "linger.ms": 20 if compression != "none" else 5,
                "batch.num.messages": batch,
                "message.max.bytes": 100 << 20,
                "logger": QUIET,
            }
        )
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for number, stamp in enumerate(stamps_ms):
            key = f"k{number}"  # compacted topics want one
            content = value if isinstance(value, bytes) else value()
            more: dict[str, Any] = {} if headers is None else {"headers": headers(number)}
            producer.produce(topic, content, key, partition=partition, timestamp=stamp, on_delivery=delivered, **more)
        assert producer.flush(60) == 0
        return max(offsets, default=-1) + 1

    def begin_transaction(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "logger": QUIET,
                "transactional.id": f"tx-{next(_numbers)}-{os.getpid()}",
                "transaction.timeout.ms": 600_000,  # an open one stays open for a whole test
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    def transaction(self, topic: str, stamps_ms: Sequence[int], *, end: str, partition: int = 0) -> Producer:
        """Append records in a transaction that is committed, aborted or left open (``end``)."""
        producer = self.begin_transaction()
        offsets = [-2]  # of records that were written; none: no marker
        for stamp in stamps_ms:
            producer.produce(
                topic,
                b"t" * 100,
                partition=partition,
                timestamp=stamp,
                on_delivery=lambda _error, message: offsets.append(message.offset() or 0),
            )
        assert producer.flush(60) == 0
        assert end in ("commit", "abort", "open")
        if end == "open":
            return producer
        end_transaction(producer, commit=end == "commit")
        # The coordinator writes the marker behind its answer.
        wait_until(lambda: self.ends(topic, partition)[1] >= max(offsets) + 2, "the transaction's marker")
        return producer

    def _of_coordinator(self, ask: Callable[[AdminClient], bool], what: str) -> None:
        """Ask until it is done: a client may go on asking a coordinator that has just died, so another one is tried."""
        fresh = (AdminClient({"bootstrap.servers": self.bootstrap, "logger": QUIET}) for _ in range(24))
        clients = itertools.chain([self.admin], fresh)
        late = {
            *(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._MSG_TIMED_OUT, KafkaError.NOT_COORDINATOR),
            *(KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        }

        def done() -> bool:
            with suppress(TimeoutError), passing(*late):
                return ask(next(clients))
            return False

        wait_until(done, what, 120)

    def delete_group(self, name: str) -> None:
        tries = itertools.count()

        def gone(admin: AdminClient) -> bool:
            # An earlier request may have deleted it, although its answer was lost.
            known = [KafkaError.GROUP_ID_NOT_FOUND] if next(tries) else []
            with passing(*known):
                admin.delete_consumer_groups([name], request_timeout=4)[name].result(6)
            return True

        self._of_coordinator(gone, f"group {name} deleted")

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        wanted = TopicPartition(topic, partition, offset)

        def done() -> Any:
            # The broker that was asked may not know its leader yet, nor the leader a new cleanup.policy.
            with passing(KafkaError._NOENT, KafkaError.POLICY_VIOLATION, *_MOVING):
                return self.admin.delete_records([wanted])[wanted].result(60)

        wait_until(done, f"a leader of {topic}-{partition}")

    def ends(self, topic: str, partition: int = 0, patience_s: float = 60) -> tuple[int, int]:
        """Return S and H. A leader that metadata names may not know it yet."""
        client = {"bootstrap.servers": self.bootstrap, "group.id": "kretain-test-ends", "logger": QUIET}

        def ends() -> tuple[int, int] | None:
            # A consumer that was told "no leader" once may say so for minutes without asking again: each try has its own.
            with closing(Consumer(client)) as consumer, passing(*_MOVING):
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)

        return wait_until(ends, f"a leader of {topic}-{partition}", patience_s)

    def messages(self, topic: str, partition: int = 0, isolation: str = "read_committed", start: int = 0) -> list[Any]:
        """Return everything that can still be read, from an offset on."""
        client = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "kretain-test-reads",
            "logger": QUIET,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,  # the end of a log is an empty answer, which a broker holds back for so long
        }
        found: list[Any] = []
        with closing(Consumer(client)) as consumer:
            # Where it is to look for the beginning by itself, librdkafka waits for half a second.
            consumer.assign([TopicPartition(topic, partition, start or self.ends(topic, partition)[0])])
            deadline = time.monotonic() + 90
            while time.monotonic() < deadline:
                first = consumer.poll(1)
                for message in [] if first is None else [first, *consumer.consume(10_000, timeout=0)]:
                    if (error := message.error()) is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found
            raise AssertionError(f"{topic}-{partition} could not be read to its end")

    def records(self, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[tuple[int, int]]:
        """Return (offset, timestamp) of everything that can still be read."""
        return [(one.offset(), one.timestamp()[1]) for one in self.messages(topic, partition, isolation)]

    # -- groups ----------------------------------------------------------------

    def commit(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int] | int,
        epochs: Mapping[int, int] | None = None,
        metadata: str = "",
    ) -> None:
        """Commit as a group without members."""
        by_partition = {0: offsets} if isinstance(offsets, int) else offsets
        known = epochs or {}  # -1 is none
        wanted = [TopicPartition(topic, n, at, metadata, known.get(n, -1)) for n, at in by_partition.items()]  # type: ignore[call-arg]

        def committed(admin: AdminClient) -> bool:
            groups = [ConsumerGroupTopicPartitions(group, wanted)]
            try:
                done = admin.alter_consumer_group_offsets(groups, request_timeout=4)[group].result(6)
            except KafkaException:  # a topic or group that was made just now, too
                return False
            return all(one.error is None for one in done.topic_partitions)

        self._of_coordinator(committed, f"commit of {group} on {topic}")

    def member(self, group: str, topics: Sequence[str], **config: Any) -> Consumer:
        """Join a group and wait for an assignment. The caller closes it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "logger": QUIET,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )
        consumer.subscribe(list(topics))
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline, f"{group} got no assignment"
            consumer.poll(0.1)
        return consumer

    # -- kretain ------------------------------------------------------------------

    def selection(self, policy: str, *topics: str) -> Selection:
        return Selection(parse_policy(policy, "policy.yaml", "sha256:test"), topics)

    def plan(
        self,
        policy: str,
        *topics: str,
        at_ms: int | None = None,
        remember: bool = True,
        clock: Clock = SYSTEM,
        memories_by: Callable[[ClusterReader], Memories] | None = None,
    ) -> Plan:
        state_dir = self.state_dir if remember else self.state_dir.with_name(f"fresh-{next(_numbers)}")
        with (
            reader_for(self.bootstrap, clock=clock, contexts=self.contexts) as reader,
            closing(memories_by(reader) if memories_by else Memories(state_dir)) as memories,
        ):
            return LocalPlanner().plan(
                PlanJob(
                    reader,
                    self.selection(policy, *topics),
                    at_ms or now_ms(),
                    past_day=lambda _cluster: Amount(),
                    memories=memories,
                    clock_ms=now_ms if at_ms is None else lambda: at_ms,
                )
            )

    def decide(
        self,
        policy: str,
        topic: str,
        partition: int = 0,
        at_ms: int | None = None,
        *,
        remember: bool = True,
        clock: Clock = SYSTEM,
    ) -> Decision:
        plan = self.plan(policy, at_ms=at_ms, remember=remember, clock=clock)
        return next(one for one in plan.decisions if one.tp == (topic, partition))

    def trim(
        self,
        plan: Plan,
        policy: str | Callable[[], str],
        *,
        dry_run: bool = False,
        clock: Clock = SYSTEM,
        **more: Any,
    ) -> TrimReport:
        def selection() -> Selection:
            return self.selection(policy if isinstance(policy, str) else policy())

        with (
            reader_for(self.bootstrap, clock=clock, contexts=self.contexts) as reader,
            closing(Memories(self.state_dir)) as memories,
        ):
            more.setdefault("memories", memories)
            job = TrimJob(
                reader=reader,
                plan=plan,
                selection=selection,
                state_dir=self.state_dir,
                clock_ms=now_ms,
                exit_code_for=lambda _report: 0,
                dry_run=dry_run,
                **more,
            )
            return shipped(job, carry_out(job))

    def cli(self, *arguments: str, stdin: str | None = None, check: int | None = None, **environ: str) -> Cli:
        return run_cli(
            *arguments, "-b", self.bootstrap, "--state-dir", str(self.state_dir), stdin=stdin, check=check, **environ
        )


@dataclass
class Cli:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def run_cli(*arguments: str, stdin: str | None = None, check: int | None = None, **environ: str) -> Cli:
    """Run the real command, as a process of its own; see ``tests/support/processes.py``."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("KRETAIN_")}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((stdin or "").encode())
        given.seek(0)
        everything = {**inherited, "COLUMNS": "120", **environ}
        code = processes.run(arguments, stdin=given, stdout=out, stderr=err, environ=everything)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    result = Cli(code, *texts)
    assert check is None or result.code == check, f"exit {result.code}, not {check}:\n{result.out}\n{result.err}"
    return result


def consumed(topic: str, after: str = "1h", **more: str) -> str:
    """Return a policy with R1 on for one topic."""
    return "\n".join(
        [
            "version: 1",
            "topics:",
            f"  - match: {json.dumps(topic)}",
            "    retention.commitoffset.enable: true",
            f"    retention.commitoffset.ms: {after}",
            *(f"    {key.replace('__', '.')}: {value}" for key, value in more.items()),
        ]
    )


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def commit_raw(world: World, group: str, topic: str, offset: int) -> None:
    """Commit any offset, also one below zero."""
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic  # noqa: N806  (a class)
    place = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        version=4,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=[Topic(name=topic, partitions=[place])],
    )
    [done] = ask_coordinator(world.bootstrap, group, request).topics[0].partitions
    assert done.error_code == 0


def coordinator_of(bootstrap: str, group: str) -> int:
    """Wait until a group has a coordinator; return that broker."""

    def coordinator() -> int | None:
        with reader_for(bootstrap) as reader:
            return reader.coordinators([group]).get(group)

    return wait_until(coordinator, f"the coordinator of {group}")


def group_coordinated_by(bootstrap: str, broker: int, stem: str) -> str:
    """Return the first name of a group, of those that begin with a stem, that a broker coordinates."""
    return next(one for n in range(99) if coordinator_of(bootstrap, one := f"{stem}-{n}") == broker)


def ask_coordinator(bootstrap: str, group: str, request: Any) -> Any:
    """Send a request to a group's coordinator; return its answer."""
    coordinator = coordinator_of(bootstrap, group)
    with reader_for(bootstrap) as reader:
        return reader.wire.run(reader.wire.ask, request, coordinator)


class Raw(str):
    """A header's name in bytes that are no UTF-8."""

    __slots__ = ()

    def encode(self, *_arguments: object) -> bytes:
        return b"bad\xff\xfe"


def send_raw(world: World, topic: str, name: str) -> None:
    from kafka import KafkaProducer

    with closing(KafkaProducer(bootstrap_servers=world.bootstrap)) as producer:
        producer.send(topic, b"x", headers=[(name, b"2")], partition=0).get(30)
