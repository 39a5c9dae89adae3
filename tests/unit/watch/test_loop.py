"""``watch``: how often the loop works, a policy that changes, its ceiling, its metrics, and posts to a webhook."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import typer
from hypothesis import example, given, strategies as st

from kretain.__main__ import send_again
from kretain.commands import watch
from kretain.commands.watch import _address
from kretain.errors import UsageError
from kretain.system.signals import Ending
from retention_cli.advise.facts import TopicSettings
from retention_cli.brokers.election import Candidate
from retention_cli.brokers.errors import BrokerError, RequestFailedError, UnauthorizedError, UnreachableError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import (
    Decision,
    Floor,
    Maybe,
    PartitionFacts,
    Reason,
    Sample,
    TopicPartition,
    Unknown,
    Watermark,
)
from retention_cli.core.state_dir import LockedError, StateError
from retention_cli.decide.decision import unread_below
from retention_cli.disks.disk import Disk, Room
from retention_cli.forecast.loss import Place, Queue, queue_of
from retention_cli.forecast.steady import PartitionForecast, Retained, Seen, Terms, forecast_partitions
from retention_cli.forecast.value import ENDLESS, Rate, Span
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.policy.urls import EVENTS, NotifyRules
from retention_cli.protect.decision import Decision as Change, Protection, Record
from retention_cli.trim.batches import RefusedError, StopError
from retention_cli.trim.narrow import Ceiling, narrowed
from retention_cli.trim.report import TrimReport, TrimRow
from retention_cli.trim.run import PlanRefusedError
from retention_cli.watch.board import KINDS, NAMES, Board, Server, as_text, kind_of, registry_of
from retention_cli.watch.leader import Leadership
from retention_cli.watch.loop import Folded, Loop, pause_s
from retention_cli.watch.measured import MOST_GROUPS, MOST_PAIRS, Series, groups_of, label, measured
from retention_cli.watch.notify import DAY_MS, TIMEOUT_S, Held, Notice, Notifier, body, of_report
from retention_cli.watch.one_pass import SETTLES_S, Passed, Passes, PolicyFile, seconds_left
from tests.support.facts import HOUR, NOW, known, topic
from tests.support.forecasts import limits
from tests.support.http_server import Webhook
from tests.support.plans import plan, row
from tests.support.says import refusal, says
from tests.support.watching import PLAN_SERIES, samples
from tests.support.world import wait_until, written


def ceiling_row(partition: int, start: int, records: int, size: int | None, floor: int | None) -> Decision:
    trim = records > 0
    target = start + records
    return Decision(
        "t",
        "id",
        partition,
        "trim" if trim else "hold",
        start,
        target + 5,
        target + 5,
        floor,
        None if floor is None else "group:g",
        target if trim else None,
        records,
        size if trim else 0,
        unread_below(target, start, floor) if trim else 0,
        "consumed" if trim else None,
        None,
        (),
        leader_epoch=0,
    )


GOOD = "version: 1\ntopics:\n  - {match: a, retention.ms: 1d}\n"
HELD = GOOD + "  - {match: a, hold: legal}\n"
BROKEN = GOOD + "  - {match: a, hold: [\n"


@pytest.mark.parametrize(
    ("interval_s", "took_s", "failures", "expected"),
    [
        (300, 20, 0, 280),
        (300, 299.9, 0, 1),
        (300, 900, 0, 1),
        (2, 5, 0, 0.2),
        (300, 5, 1, 10),
        (300, 5, 3, 40),
        (300, 5, 10, 300),
        (300, 5, 10_000, 300),
        (2, 0, 1, 2),
        (2, 0, 9, 60),
    ],
)
def test_pause_follows_interval_and_failures(interval_s: float, took_s: float, failures: int, expected: float) -> None:
    assert pause_s(interval_s, took_s, failures, 0.5) == expected


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.integers(0, 100), st.floats(0, 1))
def test_error_pause_is_bounded(interval_s: float, took_s: float, failures: int, chance: float) -> None:
    assert 0 < pause_s(interval_s, took_s, failures, chance) <= 1.1 * max(interval_s, 60) + 1e-6


def test_repeated_errors_are_folded() -> None:
    folded = Folded()
    assert [folded.error(text) for text in "aaaaab"] == [
        "a",
        "a (2 times in a row)",
        None,
        "a (4 times in a row)",
        None,
        "b",
    ]
    assert (folded.good(), folded.error("b"), folded.error("b")) == (None, "b", "b (2 times in a row)")
    assert folded.good() == "recovered after 2 failures"


def test_lasting_note_is_shown_once() -> None:
    folded = Folded()
    looks: list[list[str]] = [["one"], ["one", "two", "two"], [], ["one"]]
    assert [list(folded.notes(notes)) for notes in looks] == [["one"], ["two"], [], ["one"]]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnreachableError("x"), "unreachable"),
        (UnauthorizedError("x"), "unauthorized"),
        (RequestFailedError("x", retriable=True), "broker"),
        (BrokerError("x"), "broker"),
        (PolicyError([]), "policy"),
        (NothingMatchesError("x"), "policy"),
        (LockedError("x"), "locked"),
        (RefusedError([]), "refused"),
        (PlanRefusedError("x"), "refused"),
        (StateError("x"), "state"),
        (OSError(28, "No space left"), "system"),
        (StopError(Reason("x", "y")), "other"),
        (ValueError("x"), None),
        (RecursionError("x"), None),
    ],
)
def test_expected_error_has_a_kind_and_a_defect_has_none(error: Exception, kind: str | None) -> None:
    assert (kind_of(error), kind is None or kind in KINDS) == (kind, True)


def policy_file(path: Path, settles_s: float = 1e-9) -> PolicyFile:
    return PolicyFile(lambda: Selection(load_policy(path)), settles_s)  # by default two looks in a row


def put(path: Path, text: str | None) -> None:
    """Have this text in the policy's file; None: no file."""
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)


@pytest.mark.parametrize(
    ("texts", "held", "broken"),
    [
        ([GOOD, GOOD], [False, False], [False, False]),
        ([GOOD, HELD, HELD, GOOD, GOOD], [False, True, False, True, False], [False] * 5),
        ([GOOD, BROKEN, BROKEN, GOOD, GOOD], [False, True, True, True, False], [False, True, True, False, False]),
        ([GOOD, None, GOOD, GOOD], [False, True, True, False], [False, True, False, False]),
        ([GOOD, HELD, GOOD, HELD, HELD], [False, True, True, True, False], [False] * 5),
    ],
)
def test_changed_file_counts_once_it_is_stable(
    tmp_path: Path, texts: list[str | None], held: list[bool], broken: list[bool]
) -> None:
    """What was broken may have been meant to hold; what has just changed may be half written. None: it is gone."""
    file = policy_file(tmp_path / "policy.yaml")
    looks = []
    for text in texts:
        put(tmp_path / "policy.yaml", text)
        looks.append(file.read_current())
    assert ([one.hold is not None for one in looks], [one.broken is not None for one in looks]) == (held, broken)
    assert file.valid != broken[-1]


def test_file_broken_from_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(BROKEN)
    refusal(PolicyError, policy_file(tmp_path / "policy.yaml").read_current)


@pytest.mark.parametrize("text", [HELD, BROKEN, None])
def test_file_changed_during_a_pass_stops_it_and_settles_again(tmp_path: Path, text: str | None) -> None:
    path = written(tmp_path / "policy.yaml", GOOD)
    file = policy_file(path)
    digest = file.read_current().selection.policy.digest
    assert file.again(digest).policy.digest == digest
    put(path, text)
    refusal(StopError, file.again, digest)
    path.write_text(GOOD)
    assert [file.read_current().hold is None for _ in range(2)] == [False, True], "it was another text in between"


def test_signal_waits_for_the_critical_section() -> None:
    done = []

    def work(ending: Ending, *numbers: signal.Signals) -> None:
        with ending.uninterrupted():
            for number in numbers:
                time.sleep(0.05)  # two at once are one
                signal.raise_signal(number)
            done.append("finished")

    with Ending().heard() as ending:
        with pytest.raises(KeyboardInterrupt):
            work(ending, signal.SIGTERM)
        assert (done, ending.requested) == (["finished"], True)
    with Ending().heard() as ending, pytest.raises(KeyboardInterrupt):
        work(ending, signal.SIGTERM, signal.SIGINT)
    assert done == ["finished"], "a second one does not wait"


def test_signal_that_python_could_not_raise_is_sent_again_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", send_again)
    done = []

    class Signals:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def work(ending: Ending) -> None:
        with ending.uninterrupted():
            time.sleep(0.3)
            done.append("finished")

    with Ending().heard() as ending:
        Signals()
        with pytest.raises(KeyboardInterrupt):
            work(ending)
        time.sleep(0.3)
    assert (done, ending.requested, ending.signal) == ([], True, "SIGTERM"), "nothing begins after it"
    with Ending().heard() as ending:
        Signals()
    time.sleep(0.3)  # one that comes after the end would end this test
    assert ending.requested


def test_two_signals_at_once_are_one_and_nothing_begins_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", send_again)

    class Signals:
        def __del__(self) -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, both)

    def wait(signals: Callable[[], object]) -> None:
        signals()
        time.sleep(1)

    def work(ending: Ending) -> None:
        with ending.uninterrupted():
            pytest.fail("a batch began")

    both = (signal.SIGTERM, signal.SIGHUP)
    with Ending().heard() as ending:
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):  # sent again
            wait(Signals)
        with pytest.raises(KeyboardInterrupt):
            work(ending)


def test_signal_does_not_replace_an_error() -> None:
    def work(ending: Ending) -> None:
        with ending.uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            raise StateError("the audit log can't be written")

    with Ending().heard() as ending, pytest.raises(StateError):
        work(ending)


def test_watch_is_ready_only_after_a_recent_success(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    board = Board(300, lambda: False, lambda: True)
    seen = [board.unready]
    board.succeed(5.0)
    for later in (0, 950, 20):
        now[0] += later
        seen.append(board.unready)
    assert seen == ["no pass has succeeded yet", None, None, "the last pass that succeeded was 970 s ago"]
    stuck = board.alive
    board.tick()
    assert (stuck, board.alive) == (False, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9308", ("127.0.0.1", 9308)),
        ("[::1]:9308", ("::1", 9308)),
        ("localhost:0", ("localhost", 0)),
        ("off", None),
    ],
)
def test_valid_listen_address_is_parsed(text: str, expected: tuple[str, int] | None) -> None:
    assert _address(text) == expected


def test_server_listens_on_loopback_by_default() -> None:
    """Metrics name groups and topics, and nobody is asked for a password."""
    (option,) = (one for one in typer.main.get_command(watch.watch).params if "--listen" in one.opts)
    where = known(_address(str(option.default)))
    assert ipaddress.ip_address(where[0]).is_loopback
    with contextlib.closing(Server(where[0], 0, Board(300, lambda: True, lambda: True))) as server:
        socket.create_connection((where[0], server.server_port), timeout=5).close()
        assert "refused" in refusal(OSError, socket.create_connection, ("127.0.0.2", server.server_port), timeout=5)


@pytest.mark.parametrize("text", ["", "9308", ":9308", "host:", "host:x", "host:65536", "host:-1", "host:٣"])
def test_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises((UsageError, typer.BadParameter)):
        _address(text)


def test_changed_file_is_not_trusted_however_soon_it_is_read_again(tmp_path: Path) -> None:
    """An instance that has just become the leader looks again within a moment."""
    path = tmp_path / "policy.yaml"
    file = policy_file(path, SETTLES_S)
    for text, trusted in ((GOOD, True), *[(HELD, False)] * 3):
        put(path, text)
        assert (file.read_current().hold is None) == trusted


ROWS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.integers(0, 40),
        st.none() | st.integers(0, 1000),
        st.none() | st.integers(0, 100),
    ),
    max_size=6,
).map(lambda found: [ceiling_row(number, *one) for number, one in enumerate(found)])


@given(
    ROWS,
    st.builds(Ceiling, st.none() | st.integers(1, 100), st.none() | st.integers(1, 2000)),
    st.none() | st.integers(-1, 7).map(lambda number: TopicPartition("t", number)),
    st.booleans(),
)
@example([ceiling_row(0, 0, 10, 100, 10)], Ceiling(), None, False)
def test_ceiling_only_narrows_and_is_kept(
    rows: list[Decision], ceiling: Ceiling, after: TopicPartition | None, whole: bool
) -> None:
    made = plan(*rows)
    under = narrowed(made, ceiling, after, lambda _topic: whole)
    assert under.plan is made or ceiling != Ceiling(), "without a ceiling it is unchanged"
    trims = [one for one in under.plan.decisions if one.action == "trim"]
    assert [one.tp for one in under.plan.decisions] == [one.tp for one in rows]
    for was, now in zip(rows, under.plan.decisions, strict=True):
        if now.action != "trim":
            assert (now.trim_to, now.records) == (None, 0)
            continue
        start, farthest, end = known(now.log_start), known(was.trim_to), known(now.trim_to)
        assert was.action == "trim"
        assert start < end <= farthest
        assert now.records == end - start
        assert now.unconsumed == unread_below(end, start, now.min_commit) <= was.unconsumed
        assert not whole or end == farthest
    for most, sizes in (
        (ceiling.max_records, [one.records for one in trims]),
        (ceiling.max_bytes, [one.size_bytes for one in trims]),
    ):
        assert most is None or sum(map(known, sizes)) <= most
    assert under.later + len(trims) == sum(one.action == "trim" for one in rows)


def test_ceiling_trims_rows_in_turn_over_several_passes() -> None:
    """The first rows would else take every pass's share."""
    rows = [ceiling_row(number, 0, 10, 100, 10) for number in range(3)]
    after, first = None, []
    for _ in range(4):
        under = narrowed(plan(*rows), Ceiling(10), after)
        after = under.last
        first += [one.partition for one in under.plan.decisions if one.action == "trim"]
    assert first == [0, 1, 2, 0]


HOLD, NO_RULES = Settings(), DiskRules()
TRIM = Settings(unconsumed="trim")


def r6(bytes_per_ms: float | None) -> Sequence[Maybe[Queue]]:
    """Return the queue of a disk that grows so fast and may gain 100,000 bytes until its ceiling of half."""
    rate: Maybe[Rate] = (
        Unknown.because("rate", "?") if bytes_per_ms is None else Rate(bytes_per_ms, bytes_per_ms, bytes_per_ms, HOUR)
    )
    tp, part = TopicPartition("t", 0), PartitionForecast(rate, Span.of(1.0), ENDLESS, Retained(ENDLESS), 0.0)
    return [queue_of(Disk(1, ("/data",), Room(1_000_000, 400_000, 400_000), {tp: 1000}), 50, {tp: part}, [])]


def seconds(
    brokers: TopicSettings,
    settings: Settings = HOLD,
    *,
    seen: tuple[tuple[int, int], ...] = ((HOUR // 2, 7),),
    floor: int = 7,
    trim_to: int | None = None,
    rules: DiskRules = NO_RULES,
    queues: Sequence[Maybe[Queue]] = (),
) -> float | None:
    """Return what is told of a log of 10 records from 5 on, of 100 bytes each, which ended there so long ago."""
    one = ceiling_row(0, 5, 0, 0, 7)._replace(high_watermark=10, min_commit=floor, trim_to=trim_to)
    facts = PartitionFacts(topic("t"), 0, 5, 10, 10, Floor(floor, "group:g"), size_bytes=1000)
    here = Seen(facts, [Sample(NOW - ago, end) for ago, end in seen], Sample(NOW, 10))
    terms = Terms(0, HOUR, NOW)
    (part,) = forecast_partitions([here], brokers, settings, terms)
    return seconds_left(one, Place(here, part, brokers, settings, queues, terms), settings, rules)


BY_SIZE = limits(retention_bytes=2000, segment_bytes=0, retention_ms=10 * HOUR)
WATERMARKS = DiskRules(watermarks=(Watermark(80, 0.5, 1),))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"brokers": limits(retention_ms=HOUR)}, 1800),
        ({"brokers": limits(retention_ms=HOUR), "seen": ((2 * HOUR, 7),)}, 0),
        ({"brokers": limits(retention_ms=HOUR), "seen": ()}, None),  # nobody saw when it came
        ({"brokers": limits()}, None),  # for ever
        ({"brokers": limits(retention_ms=HOUR, cleanup_policy=frozenset({"compact"}))}, None),  # compacted alone
        ({"brokers": limits(), "floor": 4}, 0),  # it is losing records already
        ({"brokers": limits(), "trim_to": 8}, 0),  # this plan takes them
        ({"brokers": limits(), "trim_to": 7}, None),
        ({"brokers": limits(retention_ms=10 * HOUR), "settings": Settings(forced_age_ms=HOUR)}, 1800),
        ({"brokers": limits(), "settings": Settings(forced_age_ms=HOUR, forced_age_guarded=True)}, None),
        ({"brokers": limits(retention_ms=Unknown.because("x", "y")), "settings": Settings(forced_age_ms=HOUR)}, None),
        (
            {"brokers": BY_SIZE, "seen": ((2 * HOUR, 6), (HOUR, 7))},
            8400,
        ),  # room for 7 more records; 3 came an hour at most
        ({"brokers": BY_SIZE, "seen": ((HOUR // 2, 7),)}, None),  # how fast it grows is not known yet
        ({"brokers": limits(), "settings": TRIM, "queues": r6(1.0)}, 100),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "queues": r6(1.0)}, 100),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "queues": r6(0.01)}, 1800),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "queues": r6(None)}, None),  # R6 might come first
        ({"brokers": limits(retention_ms=HOUR), "queues": r6(1.0)}, 1800),  # G2 holds it back
        ({"brokers": limits(retention_ms=HOUR), "queues": r6(None)}, 1800),
        ({"brokers": limits(retention_ms=HOUR), "settings": TRIM, "rules": WATERMARKS}, None),  # R7 may shorten it
        ({"brokers": limits(retention_ms=HOUR), "rules": WATERMARKS}, 1800),
    ],
)
def test_time_to_loss_is_a_lower_bound_or_absent(said: dict, found: float | None) -> None:
    assert seconds(**said) == found


def test_unread_partition_has_no_time_to_loss() -> None:
    assert seconds_left(ceiling_row(0, 5, 0, 0, 7)._replace(high_watermark=10), None, HOLD, NO_RULES) is None


def nothing_measured() -> dict[str, Series]:
    return measured(plan(), groups_of([], lambda _one: None), None)


def test_every_metric_is_exported_and_series_of_vanished_items_end() -> None:
    board = Board(300, lambda: True, lambda: True)
    registry = registry_of(board)
    assert {key[0] for key in _samples(registry)} < set(NAMES)
    board.succeed(1.0)
    board.cluster, board.pass_s, board.planned_s, board.protected = "c", 0.1, 2.0, 1
    board.measured = PLAN_SERIES
    found = _samples(registry)
    assert {key[0] for key in found} == set(NAMES)
    board.measured = nothing_measured()
    lag = ("kretain_group_lag_records", "group:a")
    assert (lag in found, lag in _samples(registry)) == (True, False)


def change(outcome: Any) -> Change:
    problem = "POLICY_VIOLATION" if outcome == "failed" else None
    record = Record("orders", "id", "retention.ms", "restored", None, 1, None, None, "", 0, "")
    return Change("orders", "id", "retention.ms", "raise", None, 1, 2, 1, record, outcome=outcome, problem=problem)


@pytest.mark.parametrize("refused", [False, True])
def test_failure_of_protect_is_counted_each_time_and_posted_once_in_a_row(refused: bool) -> None:
    """Whatever else went wrong in the pass."""
    failed, done = (Protection("c", "b", [change(one), change("done")]) for one in ("failed", "done"))
    last = Passed(plan(), nothing_measured(), refused=refused, unprotected=UnauthorizedError("not allowed"))
    passes = [replace(last, unprotected=None, protected=one) for one in (failed, failed, done, failed)]
    left, posted, lines = [*passes, last], list[Notice](), list[str]()
    board = Board(0.001, lambda: True, lambda: True)

    def say(text: str, event: str = "note", /, **_facts: object) -> None:
        lines.append(f"{event}: {text}")

    Loop(
        make=lambda: left.pop(0),
        board=board,
        leadership=Leadership("watch", say),
        interval_s=0.001,
        trims=True,
        stop_requested=lambda: not left,
        say=say,
        publish=lambda: None,
        notify=posted.append,
    ).run()
    assert board.failures["protect"] == 4
    assert [(one.event, one.text) for one in posted if one.event in ("unprotected", "failed")] == [
        *[("unprotected", "protect: retention.ms of topic orders: POLICY_VIOLATION")] * 2,
        ("unprotected", "protect: not allowed"),
    ]
    assert any("protect: not allowed" in one for one in lines)


def _samples(registry: object) -> dict[tuple[str, ...], float]:
    from prometheus_client.openmetrics.exposition import generate_latest

    assert as_text(registry)
    return {key: value for key, value in samples(generate_latest(registry).decode()).items() if key[0] in NAMES}  # type: ignore[no-untyped-call]


@given(st.text(max_size=400), st.text(max_size=400))
def test_label_is_printable_bounded_and_unique(one: str, other: str) -> None:
    assert (len(label(one)) <= 220, label(one).isprintable()) == (True, True)
    assert (label(one) == label(other)) == (one == other)


def test_group_series_are_bounded_and_include_the_worst() -> None:
    last = 2 * MOST_PAIRS - 1
    rows = [
        ceiling_row(number, 0, 0, 0, 1)._replace(
            min_commit_by=f"group:{number}", high_watermark=10 + number, topic=f"t{number}"
        )
        for number in range(last + 1)
    ]
    found = groups_of(rows, lambda one: 3600 - one.partition / 1000)
    lag, loss = found["group_lag_records"], found["group_seconds_to_loss"]
    assert (len(lag) <= 2 * MOST_GROUPS, len(loss) <= MOST_PAIRS) == (True, True)
    assert lag[f"group:{last}",] == last + 9
    assert min(left for left in loss.values() if left is not None) == loss[f"group:{last}", f"t{last}"]


def test_group_that_read_everything_has_no_time_to_loss() -> None:
    rows = [ceiling_row(n, 5, 0, 0, 7)._replace(high_watermark=10 if n else 7) for n in range(3)]
    found = groups_of(rows, lambda one: 100.0 - one.partition)
    assert found == {"group_lag_records": {("group:g",): 6}, "group_seconds_to_loss": {("group:g", "t"): 98.0}}
    assert groups_of(rows, lambda _one: None)["group_seconds_to_loss"] == {}


def test_pass_that_took_longer_than_the_interval_counts_as_long_as_it_took() -> None:
    """P2: three passes ahead, of those that there are: records would be due before the next look. Not as a standby."""
    passes = Passes(**{one.name: 60_000 for one in fields(Passes) if one.init})  # type: ignore[arg-type]
    times_s = (0.0, 60.0, 70.0, 3_670.0, 3_730.0, None, 9_000.0, 9_070.0)
    lasted = [60_000, 60_000, 60_000, 3_600_000, 60_000, 60_000, 60_000, 70_000]
    assert [passes.period_ms(at) for at in times_s] == lasted


# -- posts to a webhook: what they say, and that a webhook that fails costs one line (docs/watch.md, Notifications) --


SECRET = "s3cr3t"


def posted(rules: NotifyRules, *notices: Notice) -> tuple[list[str], float]:
    """Post; return the lines about what failed, and how long posting took without the wait at the end (s)."""
    lines: list[str] = []
    notifier = Notifier("prod", lines.append)
    began = time.monotonic()
    for notice in notices:
        notifier.post(rules, notice)
    took = time.monotonic() - began
    notifier.close()
    assert SECRET not in "".join(lines) + repr(rules)
    return lines, took


def decision(topic: str, partition: int, action: str, *codes: str) -> Decision:
    reasons = tuple(Reason(code, "why") for code in codes)
    return row(topic=topic, partition=partition, action=action, trim_to=None, reasons=reasons)


def report(*outcomes: str) -> TrimReport:
    rows = [
        TrimRow(TopicPartition("t", number), outcome, 7, 7, records=7 if outcome == "trimmed" else 0, size_bytes=None)  # type: ignore[arg-type]
        for number, outcome in enumerate(outcomes)
    ]
    return TrimReport("run-1", "cluster-id", "broker:9092", rows)


def test_webhook_gets_sentence_and_facts_of_asked_events() -> None:
    with Webhook() as hook:
        notices = of_report(report("trimmed", "trimmed", "failed", "unchanged"))
        assert posted(NotifyRules(hook.url, ("trimmed",)), *notices)[0] == []
    assert hook.bodies == [
        {
            "text": "kretain, prod: trimmed 14 records of 2 partitions, run run-1",
            "event": "trimmed",
            "cluster": "prod",
            "cluster_id": "cluster-id",
            "run": "run-1",
            "partitions": 2,
            "records": 14,
            "bytes": None,
        }
    ]
    assert ([one.event for one in notices], notices[1].text) == (["trimmed", "failed"], "1 partition failed, run run-1")
    assert of_report(report("unchanged", "held", "would-trim")) == []


def test_webhook_that_never_answers_delays_nothing_and_costs_one_line_each() -> None:
    with Webhook(status=None) as hook:
        began = time.monotonic()
        lines, took = posted(NotifyRules(hook.url), *[Notice("failed", "x")] * 6)
        assert took < 1
        assert time.monotonic() - began < TIMEOUT_S + 2
    assert lines[:2] == ["not posted (failed): the webhook is too slow"] * 2, "four are under way"
    assert set(lines[2:]) <= {"not posted (failed): not read within 5 s (timeout)"}


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://127.0.0.1:1/s3cr3t", "Connection refused"),
        ("env:KRETAIN_TEST_NO_HOOK", "the variable KRETAIN_TEST_NO_HOOK is not set"),
        ("file:nothing-here", "No such file or directory"),
        ("file:not-a-url", "is not a webhook's URL: write https://…, env:NAME or file:PATH"),
    ],
)
def test_webhook_that_cannot_be_used_costs_one_line_without_its_url(url: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "not-a-url").write_text(f"slack/{SECRET}\n")
    [found] = posted(NotifyRules(url, folder=tmp_path), Notice("failed", "x"))[0]
    assert found.startswith("not posted (failed): ")
    assert line in found


def test_refused_post_names_the_status() -> None:
    with Webhook(status=403) as hook:
        assert posted(NotifyRules(hook.url), Notice("held", "x"))[0] == [
            "not posted (held): the webhook answered HTTP 403"
        ]


def test_url_is_read_from_a_variable_or_a_file_beside_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Webhook() as hook:
        (tmp_path / "hook").write_text(hook.url + "\n")
        monkeypatch.setenv("HOOK", hook.url)
        monkeypatch.setenv("HOME", str(tmp_path))
        for url in ("file:hook", "file:~/hook", "env:HOOK", hook.url):
            text = f"version: 1\nnotify: {{url: '{url}'}}\ntopics: [{{match: t, retention.ms: 1d}}]\n"
            rules = parse_policy(text, str(tmp_path / "policy.yaml"), "").notify
            assert (rules.events, posted(rules, Notice("refused", "too much"))[0]) == (EVENTS, [])
    assert (hook.events(), posted(NotifyRules(), Notice("failed", "x"))[0]) == (["refused"] * 4, [])


@pytest.mark.parametrize(
    "notify",
    [
        "{url: 'ftp://h/s3cr3t'}",
        "{url: 'https://me:s3cr3t@h/'}",
        "{url: 'hooks.slack.com/s3cr3t'}",
        "{url: 'https://h/ s3cr3t'}",
        "{url: 'https://h:99999999/s3cr3t'}",
        "{url: ['https://h/s3cr3t']}",
        "{url: 'env:'}",
        "https://h/s3cr3t",
        "{url: 'https://h/s3cr3t', events: [everything]}",
        "{url: 'https://h/s3cr3t', event: held}",
        "{events: [held]}",
    ],
)
def test_invalid_notify_is_a_policy_problem_that_never_shows_the_url(notify: str) -> None:
    said = refusal(PolicyError, parse_policy, f"version: 1\nnotify: {notify}\ntopics: [{{match: t}}]\n", "p.yaml", "")
    assert (said.startswith("p.yaml:2: "), SECRET in said) == (True, False), said


def test_slack_gets_text_alone_without_markup_of_others() -> None:
    notice = Notice("held", "group <!channel> & \x1b[2J", "id", {"partitions": 1})
    found = body("https://hooks.slack.com/services/x", "prod", notice)
    assert list(found) == ["text"]
    says(str(found["text"]), "&lt;!channel&gt; &amp; ", never=["\x1b"])
    other = "https://example.com/x"
    assert body(other, "prod", notice)["partitions"] == 1
    assert len(str(body(other, "prod", Notice("failed", "x" * 9_999))["text"])) == 2_000


def test_hold_is_posted_once_after_a_day_without_a_break() -> None:
    held = Held()
    first = [decision("a", 0, "hold", "F2"), decision("b", 0, "hold", "F4", "F2"), decision("c", 0, "keep")]
    looks = ((first, 0), (first[1:], DAY_MS // 2), (first, DAY_MS), (first, DAY_MS + 1), (first, 2 * DAY_MS))
    found = [held.take_in(rows, now_ms, "id") for rows, now_ms in (*looks, ([], 3 * DAY_MS), (first, 3 * DAY_MS + 1))]
    assert [one is None for one in found] == [True, True, False, True, False, True, True]
    notice = known(found[2])
    assert (notice.text, notice.facts) == (
        "1 partition on hold for a day: b (1); F4 1; kretain why CODE says what to do",
        {"partitions": 1, "holds": {"F4": 1}},
    )
    assert "a (1)" in known(found[4]).text


# -- ``watch`` answers health checks while other clients misbehave --


@pytest.fixture
def server() -> Iterator[Server]:
    with contextlib.closing(Server("127.0.0.1", 0, Board(300, lambda: True, lambda: True))) as made:
        yield made


def get(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}", timeout=3) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def answering() -> int:
    return sum("process_request_thread" in one.name for one in threading.enumerate())


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nHost"], ids=["idle", "in a header"])
def test_idle_clients_do_not_block_health_checks(server: Server, said: bytes) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(200):
            peer = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=5))
            peer.sendall(said)
        for _ in range(20):
            assert (get(server, "/healthz")[0], get(server, "/metrics")[0]) == (200, 200)
        assert (get(server, "/readyz")[0], answering() <= 17) == (503, True)


def test_dripping_client_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_cli.watch.board._MOST_S", 1.0)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as peer:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 5:
                peer.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 3


def test_client_that_reads_nothing_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_cli.watch.board._MOST_S", 1.0)

    def large(_environ: object, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        return iter([bytes(256 << 20)])  # more than sockets buffer

    server.set_app(large)  # (its own answers fit into a socket's buffer)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as peer:
        peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: answering() > 0, "an answer", 3)
        time.sleep(0.3)
        assert answering(), "it writes"
        wait_until(lambda: not answering(), "the end of the answer", 5)


def test_metrics_request_for_the_leader_returns_only_that_metric(server: Server) -> None:
    status, text = get(server, "/metrics?name[]=kretain_leader")
    assert status == 200
    says(text, "\nkretain_leader{", never=["kretain_policy_valid"])


def test_election_connects_next_with_the_certificates_of_the_latest_pass() -> None:
    old, new = (ConnectionSettings("127.0.0.1:1", ca_pem=pem) for pem in ("old", "new"))
    leadership = Leadership("kretain-watch", lambda _text, _event="note", /, **_facts: None)
    leadership.candidate = Candidate(old, "kretain-watch", "cluster")
    leadership.take_part(ClusterReader(new, 1), "local")
    assert leadership.candidate.settings is new
