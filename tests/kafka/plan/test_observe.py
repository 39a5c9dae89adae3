"""What changes while it is read: the safe order, and the second looks that F8, F9 and the topic id need (docs/architecture.md).

The cluster is real; a test steps in between two of the reader's own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata, topic_id_text
from retention_cli.brokers.reader import ClusterReader
from retention_cli.disks.run import DiskRun
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import observe
from retention_cli.observe.recall import Remembered
from retention_cli.observe.request import Request
from tests.support import plain
from tests.support.leaders import move_leader
from tests.support.says import held, pick
from tests.support.trims import only
from tests.support.world import HOUR, OLD, LateClock, World, codes, consumed, now_ms, reader_for, skipping, wait_until


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[int]]]:
    """Let something happen right before a call of one of the reader's methods; returns the calls that there were."""
    expected: list[tuple[str, int, list[int]]] = []

    def step_in(method: str, act: Callable[[], object], call: int = 1) -> list[int]:
        expected.append((method, call, plain.before(monkeypatch, ClusterReader, method, act, call)))
        return expected[-1][-1]

    yield step_in
    assert [method for method, call, calls in expected if len(calls) < call] == [], "nothing happened"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Change what one of the reader's calls answers, by its number."""
    expected: list[tuple[str, list[int]]] = []

    def changed(method: str, change: Callable[[int, Any], Any]) -> None:
        honest, calls = getattr(ClusterReader, method), list[int]()
        expected.append((method, calls))

        def other(self: ClusterReader, *arguments: Any, **more: Any) -> Any:
            calls.append(1)
            return change(len(calls), honest(self, *arguments, **more))

        monkeypatch.setattr(ClusterReader, method, other)

    yield changed
    for method, calls in expected:
        assert calls, f"{method} was never called: nothing was changed"


def ids_everywhere(world: World, topic: str) -> set[str | None]:
    """The topic's id as each broker has it: some hear of a change later than others."""
    with reader_for(world.bootstrap) as reader:

        async def ask(node: int) -> str | None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
            asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=10)
            found = (await reader.wire.ask(asked, node)).topics[0].topic_id  # None: there is no such topic
            return None if found is None else topic_id_text(found.bytes)

        return {reader.wire.run(ask, node) for node in reader.brokers()}


def moved_on(metadata: ClusterMetadata, name: str, by: int) -> ClusterMetadata:
    """The same metadata, after so many more elections of one topic's leaders."""
    if name not in metadata.topics:
        return metadata
    about = metadata.topics[name]
    partitions = {n: replace(one, leader_epoch=one.leader_epoch + by) for n, one in about.partitions.items()}
    return replace(metadata, topics={**metadata.topics, name: replace(about, partitions=partitions)})


def test_group_that_reads_on_during_a_plan_is_no_leftover(world: World, topic: str, before: Callable) -> None:
    """Commits are read before H: else whoever keeps up would seem to have committed beyond it (F5)."""

    def read_on() -> None:
        world.produce(topic, OLD)
        world.commit(f"{topic}-a", topic, 20)

    before("read_commits", read_on)
    assert pick(world.decide(consumed(topic), topic), "action", "trim_to", "min_commit") == ("trim", 20, 20)


def test_young_records_arriving_after_the_high_watermark_read_stay(world: World, topic: str, before: Callable) -> None:
    """H is read before look-ups: whatever the look-up then finds, nothing beyond that H goes."""
    world.commit(f"{topic}-a", topic, 10)
    before("list_offsets_soon", lambda: world.produce(topic, 5), call=3)  # 1: the ends, 2: look-ups, 3: MAX_TIMESTAMP
    assert pick(world.decide(consumed(topic), topic), "high_watermark", "trim_to") == (10, 10)


def test_topic_recreated_during_the_read_uses_its_new_facts(world: World, topic: str, before: Callable) -> None:
    old = world.decide(consumed(topic), topic).topic_id

    def renew() -> None:
        world.renew(topic)
        world.produce(topic, OLD)
        wait_until(lambda: not ids_everywhere(world, topic) & {None, old}, "the new one on every broker")

    before("list_offsets_soon", renew, call=2)  # after the ends
    decision = world.decide(consumed(topic), topic)
    assert decision.topic_id not in (None, old)
    held(decision, "F4")  # its commits went with it


def test_topic_deleted_during_the_read_holds(world: World, topic: str, before: Callable) -> None:
    other = world.topic()

    def delete() -> None:
        world.delete(topic)
        wait_until(lambda: ids_everywhere(world, topic) == {None}, "the end of it on every broker")

    before("list_offsets_soon", delete, call=2)
    both = consumed(topic).replace(f'"{topic}"', f'["{topic}", "{other}"]')
    assert "deleted while it was read" in held(world.decide(both, topic), "metadata")


@pytest.mark.parametrize(("elections", "action"), [(1, "trim"), (99, "hold")])
def test_leader_change_during_the_read_is_read_again(
    world: World, topic: str, answer: Callable, elections: int, action: str
) -> None:
    """Once is survived; each time is a hold that says so."""
    answer("metadata", lambda call, said: moved_on(said, topic, call if call <= 2 * elections else 0))
    decision = world.decide(consumed(topic), topic, clock=skipping())
    assert decision.action == action
    if action == "hold":
        assert "the leader changed each time" in decision.reasons[0].text


@pytest.mark.parametrize(
    ("method", "change", "code", "text"),
    [
        ("may_describe_cluster", lambda call, said: said and call == 1, "F8", ""),  # asked before and after the listing
        ("metadata_of_each", lambda call, said: [moved_on(one, OFFSETS_TOPIC, call) for one in said], "F9", ""),
        (
            "list_groups",
            lambda _call, said: [*said, ListedGroup("new", "unknown", "", "Stable")],
            "F3",
            "group new could not be read: this kretain does not know",
        ),
    ],
    ids=["rights are lost", "a coordinator keeps moving", "a newer broker's type of group"],
)
def test_answer_that_makes_floors_unknown_holds(
    world: World, topic: str, answer: Callable, method: str, change: Callable[[int, Any], Any], code: str, text: str
) -> None:
    answer(method, change)
    assert text in held(world.decide(consumed(topic), topic, clock=skipping()), code)


def test_coordinator_moved_during_the_read_is_read_again(
    world: World, topic: str, answer: Callable, before: Callable
) -> None:
    """F9: the same leaders and epochs before and after; where they changed, commits are read once more."""
    # Brokers are asked before and after each reading.
    answer("metadata_of_each", lambda call, said: [moved_on(one, OFFSETS_TOPIC, int(call == 2)) for one in said])
    calls = before("read_commits", lambda: world.commit(f"{topic}-a", topic, 3), call=2)
    decision = world.decide(consumed(topic), topic)
    assert (*pick(decision, "action", "trim_to"), calls) == ("trim", 3, [1, 2]), "what was committed meanwhile counts"


def test_failed_group_listing_makes_floors_unknown_but_not_the_forced_level(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9; and the plan is made all the same, though nobody can say whose unread records go."""

    def fail(*_: object) -> None:
        raise BrokerError("broker 2 did not list its groups: time-out")

    monkeypatch.setattr(ClusterReader, "list_groups", fail)
    plan = world.plan(consumed(topic, retention__ms="20h"), clock=skipping())
    decision = plan.decisions[0]
    assert pick(decision, "action", "rule", "trim_to", "unconsumed") == ("trim", "forced-age", 10, 10)
    assert (codes(decision), plan.unconsumed_by) == ({"F9"}, {})
    assert any("can't tell which groups would lose unread records" in note.text for note in plan.notes)


def test_coordinator_outside_the_listed_brokers_holds(world: World, topic: str, answer: Callable) -> None:
    """F9: whoever lists the groups of the brokers that metadata names would never ask it, and miss them without an error."""
    world.commit(f"{topic}-slow", topic, 3)
    assert world.decide(consumed(topic), topic).trim_to == 3
    with reader_for(world.bootstrap) as reader:
        hidden = reader.coordinators([f"{topic}-slow"])[f"{topic}-slow"]
    answer("metadata", lambda _call, said: replace(said, brokers=said.brokers - {hidden}))
    assert "brokers name different brokers" in held(world.decide(consumed(topic), topic, clock=skipping()), "metadata")
    answer("agree", lambda _call, _said: True)
    held(world.decide(consumed(topic), topic), "F9")


def test_unreadable_records_hold_what_only_they_can_settle(world: World, answer: Callable) -> None:
    """A look-up that says −1 and can't be settled is unknown: no keep, no guess."""
    topic = world.filled([HOUR, *OLD, 2 * HOUR], {"a": 12})
    world.delete_records(topic, 1)
    assert world.decide(consumed(topic, "90m"), topic).trim_to == 12
    failed = RequestFailedError("TOPIC_AUTHORIZATION_FAILED", retriable=False)
    answer("search_records", lambda _call, said: dict.fromkeys(said, failed))
    assert "could not be resolved by reading: TOPIC_AUTHORIZATION_FAILED" in held(
        world.decide(consumed(topic, "90m"), topic), "lookup"
    )


def test_rechecks_age_counts_from_its_first_read(
    world: World, topic: str, before: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading that takes 31 s is no recheck: nothing is sent on it."""
    clock = LateClock()
    plan = world.plan(consumed(topic))
    before("sizes_soon", lambda: clock.passed.append(31))
    monkeypatch.setattr("retention_cli.trim.batches.AGAIN_AFTER_S", (0.01,))
    monkeypatch.setattr("retention_cli.trim.batches.ATTEMPTS", 1)
    row = only(world.trim(plan, consumed(topic), clock=clock))
    assert (row.outcome, world.ends(topic)[0]) == ("failed", 0)
    assert "a recheck took longer than 30 s" in row.reasons[0].text


def test_log_changed_during_the_disk_read_is_unknown(world: World) -> None:
    """R6 looks times up after everything else: a topic recreated or another leader since then holds (M1)."""
    same, elected, recreated = (world.topic(replicas=2) for _ in range(3))
    with reader_for(world.bootstrap) as reader:
        selection = world.selection("version: 1\ntopics: [{match: '*'}]")
        observed = observe(reader, Request(selection.settings_for, selection.policy.groups, now_ms()))
        facts = {tp: one for tp, one in observed.facts.items() if tp.topic in (same, elected, recreated)}
        state = DiskRun(selection.policy.disks)
        state.take_samples(reader, facts, {}, observed.leaders, Remembered(Ledger(None), {}, observed.leaders), now_ms)
        assert (len(facts), state.changed(reader, facts)) == (3, {})
        move_leader(world, elected)
        world.delete(recreated)
        world.topic(replicas=2, name=recreated)
        found = state.changed(reader, facts)
    assert {tp.topic: one.reasons[0].code for tp, one in found.items()} == {elected: "R6", recreated: "R6"}
