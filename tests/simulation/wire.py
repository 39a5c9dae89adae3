"""Brokers' answers about groups, as they come over the wire: the engine's own requests and decoders run on them.

So the faults of a real cluster get in where they do: a row of the answer, an error of one partition, a group that the
call for its type does not find. Nothing here waits for an event loop: a coroutine runs to its end at once, and at each
request others go on.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.protocol.metadata import FindCoordinatorRequest

from retention_cli.brokers import commits, groups
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.wire import connections
from retention_cli.brokers.wire.answers import decode
from retention_cli.brokers.wire.connections import IN_FLIGHT, Job
from tests.simulation.kafka import BROKERS, Group, SimKafka, Tp, offsets_partition
from tests.support.answers import batched

if TYPE_CHECKING:
    from tests.simulation.reader import SimReader

T = TypeVar("T")
_SLEEP_S: Final = 3.0
"""A wait is at least so long: patience ends after two or three requests, as it would after twenty."""
_LOADING, _NO_COORDINATOR, _NOT_COORDINATOR, _DENIED, _NOT_FOUND, _UNSTABLE = 14, 15, 16, 30, 69, 88
_BATCHED: Final = 8
_VERSIONS: Final = {FindCoordinatorRequest.API_KEY: 6, OffsetFetchRequest.API_KEY: _BATCHED}


class _Elapsed:
    """The clock of the engine's modules: the simulated cluster's, while a simulated process runs."""

    def __init__(self) -> None:
        self.kafka: SimKafka | None = None

    def monotonic(self) -> float:
        return time.monotonic() if self.kafka is None else self.kafka.elapsed_s


_ELAPSED: Final = _Elapsed()
for _module in (commits, connections, groups):
    _module.time = _ELAPSED  # type: ignore[attr-defined]


def _or_simulated(real: Callable[..., Awaitable[Any]], simulated: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function of the engine that asks the simulated reader, where it is given a simulated wire."""

    async def either(wire: Any, *args: Any) -> Any:
        if not isinstance(wire, SimWire):
            return await real(wire, *args)
        try:
            return simulated(wire.reader, *args)
        finally:
            wire.goes_on()

    return either


_commits: Any = commits
_commits.read_metadata = _or_simulated(
    _commits.read_metadata, lambda reader, topics, _deadline: reader.metadata(topics)
)
_commits.list_offsets = _or_simulated(
    _commits.list_offsets, lambda reader, wanted, leaders: reader.list_offsets(wanted, leaders)
)


class SimWire:
    """See :class:`retention_cli.brokers.wire.connections.Wire`."""

    def __init__(self, kafka: SimKafka, reader: SimReader) -> None:
        self.reader = reader
        self.coordinators = None
        self._kafka = kafka

    def goes_on(self) -> None:
        """Have the engine's modules read this cluster's clock again: another process ran meanwhile, and has ended."""
        _ELAPSED.kafka = self._kafka

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Carry out a coroutine of the engine."""
        self.goes_on()
        try:
            work(*args).send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            _ELAPSED.kafka = None
        raise AssertionError(f"{work.__name__} waits for something that is not simulated")

    def brokers(self) -> list[int]:
        return list(BROKERS)

    async def learn_brokers(self) -> None:
        pass

    async def highest_version(self, _node: int, api_key: int) -> int:
        return _VERSIONS[api_key]

    async def sleep(self, seconds: float) -> None:
        self._kafka.pass_time(int(1000 * max(seconds, _SLEEP_S)))

    async def ask_any(self, request_for: Callable[[], Any], _deadline: float) -> Any:
        return self.find_coordinators(-1, request_for())

    def find_coordinators(self, _broker: int, request: Any) -> Any:
        rows = []
        for name in request.coordinator_keys:
            leader = self._kafka.offsets_leaders[offsets_partition(name)][0]
            code = _NO_COORDINATOR if leader is None else 0
            if self._kafka.scope is not None and not self._kafka.may_describe_group(name):
                code, leader = _DENIED, None
            rows.append(
                SimpleNamespace(key=name, node_id=-1 if leader is None else leader, error_code=code, error_message=None)
            )
        return SimpleNamespace(coordinators=rows)

    async def fan_out(
        self,
        work: Mapping[int, Iterable[Job[Any]]],
        on_reply: Callable[[Any, Any], None],
        *,
        in_flight: int = IN_FLIGHT,
        timeout_s: float | None = None,
    ) -> None:
        del in_flight, timeout_s
        for broker, jobs in work.items():
            for job in jobs:
                call, answer = _CALLS[job.request.name.removesuffix("Request")]
                if call == "read_commits" and job.request.groups[0].topics is not None:
                    call = "read_pending"
                self._kafka.pause(f"list_groups {broker}" if call == "list_groups" else call)
                self.goes_on()
                if self._kafka.lose(call):
                    self._kafka.pass_time(int(1000 * self.reader.timeout_s))
                    on_reply(job.about, RequestFailedError(f"{call}: timed out", retriable=True))
                else:
                    on_reply(job.about, answer(self, broker, job.request))

    # -- answers ---------------------------------------------------------------------

    def _led(self, broker: int, name: str) -> bool:
        return self._kafka.offsets_leaders[offsets_partition(name)][0] == broker

    def _group(self, name: str) -> Group | None:
        group = self._kafka.groups.get(name)
        return None if group is None or group.kind == "outside" else group

    def list_groups(self, broker: int, _request: Any) -> Any:
        """Answer with the groups that a broker coordinates; without DESCRIBE on the cluster, with fewer (F8)."""
        if self._kafka.loading:
            return SimpleNamespace(error_code=_LOADING, groups=[])
        rows = [
            SimpleNamespace(
                group_id=name,
                group_type=group.kind,
                protocol_type="consumer",
                group_state=group.state(self._kafka.now_ms),
            )
            for name, group in self._kafka.groups.items()
            if group.kind != "outside" and self._led(broker, name)
        ]
        if not self._kafka.may_describe:
            rows = [row for row in rows if self._kafka.may_describe_group(row.group_id)]
        return SimpleNamespace(error_code=0, groups=rows)

    def _described(self, broker: int, name: str, kind: str) -> tuple[int, Group | None]:
        if self._kafka.scope is not None and not self._kafka.may_describe_group(name):
            return _DENIED, None
        if not self._led(broker, name):
            return _NOT_COORDINATOR, None
        group = self._group(name)
        return (0, group) if group is not None and group.kind == kind else (_NOT_FOUND, None)

    def describe_classic(self, broker: int, request: Any) -> Any:
        """Answer DescribeGroups: it does not find a group of the newer protocol; only a stable one shows its members."""
        rows = []
        for name in request.groups:
            code, group = self._described(broker, name, "classic")
            state = "Dead" if group is None else group.state(self._kafka.now_ms)
            listed = frozenset[str]() if group is None else group.listed(self._kafka.now_ms)
            told = _subscription(listed) if state == "Stable" else b""
            members = [SimpleNamespace(client_id="c", member_metadata=told, member_assignment=b"")] if listed else []
            rows.append(SimpleNamespace(group_id=name, error_code=code, group_state=state, members=members))
        return SimpleNamespace(groups=rows)

    def describe_consumer(self, broker: int, request: Any) -> Any:
        """Answer ConsumerGroupDescribe: a regular expression is told with the topics that were assigned so far."""
        rows = []
        for name in request.group_ids:
            code, group = self._described(broker, name, "consumer")
            members, state = [], "Dead"
            if group is not None:
                state = group.state(self._kafka.now_ms)
                members = [_member([topic], (), None) for topic in sorted(group.listed(self._kafka.now_ms))]
                if group.pattern is not None:
                    members.append(_member([], sorted(group.assigned), group.pattern))
            rows.append(
                SimpleNamespace(group_id=name, error_code=code, error_message=None, group_state=state, members=members)
            )
        return SimpleNamespace(groups=rows)

    def offset_fetch(self, broker: int, request: Any) -> Any:
        """Answer OffsetFetch for stable offsets: of all topics a first offset that is pending is left out."""
        answers = []
        for asked in request.groups:
            name, group = asked.group_id, self._group(asked.group_id)
            code = 0 if self._led(broker, name) else _NOT_COORDINATOR
            if self._kafka.scope is not None and not self._kafka.may_describe_group(name):
                code = _DENIED
            rows: dict[str, list[dict[str, Any]]] = {}
            if code == 0:
                if asked.topics is None:
                    self.reader.on_commits(name)
                    places: Iterable[Tp] = () if group is None else sorted(group.commits)
                else:
                    places = [(one.name, n) for one in asked.topics for n in one.partition_indexes]
                for topic, partition in places:
                    rows.setdefault(topic, []).append(_row(group, (topic, partition)))
            answers.append((name, [*rows.items()], code))
        return decode(batched(answers), _BATCHED)


_CALLS: Final[dict[str, tuple[str, Callable[[SimWire, int, Any], Any]]]] = {
    "FindCoordinator": ("group_rights", SimWire.find_coordinators),
    "ListGroups": ("list_groups", SimWire.list_groups),
    "DescribeGroups": ("describe_members", SimWire.describe_classic),
    "ConsumerGroupDescribe": ("describe_members", SimWire.describe_consumer),
    "OffsetFetch": ("read_commits", SimWire.offset_fetch),
}


def _row(group: Group | None, tp: Tp) -> dict[str, Any]:
    """Return the fields of a partition's row."""
    error = _UNSTABLE if group is not None and tp in group.pending else 0
    offset, epoch = (-1, None) if group is None or error else group.commits.get(tp, (-1, None))
    return {
        "partition_index": tp[1],
        "committed_offset": offset,
        "committed_leader_epoch": -1 if epoch is None else epoch,
        "metadata": "",
        "error_code": error,
    }


@functools.cache
def _subscription(topics: frozenset[str]) -> bytes:
    return ConsumerProtocolSubscription(topics=sorted(topics), user_data=None, version=0).encode(version=0)  # type: ignore[no-any-return]


def _member(subscribed: list[str], assigned: Iterable[str], pattern: str | None) -> Any:
    topics = SimpleNamespace(topic_partitions=[SimpleNamespace(topic_name=one) for one in assigned])
    return SimpleNamespace(
        subscribed_topic_names=subscribed,
        assignment=topics,
        target_assignment=topics,
        subscribed_topic_regex=pattern,
    )
