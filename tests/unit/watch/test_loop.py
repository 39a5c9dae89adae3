"""How often the loop works, what it says, and what it makes of a policy file that changes."""

from __future__ import annotations

import ipaddress
import signal
import socket
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from kretain.commands import watch
from kretain.commands.watch import _address
from kretain.errors import UsageError
from kretain.system.signals import Ending
from retention_cli.audit.lock import LockedError
from retention_cli.brokers.errors import BrokerError, RequestFailedError, UnauthorizedError, UnreachableError
from retention_cli.core.model import Reason
from retention_cli.core.state_dir import StateError
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.trim.batches import RefusedError, StopError
from retention_cli.trim.run import PlanRefusedError
from retention_cli.watch.board import KINDS, Board, kind_of
from retention_cli.watch.loop import Folded, pause_s
from retention_cli.watch.policy_file import PolicyFile
from retention_cli.watch.server import Server

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
    assert [folded.error("a") for _ in range(5)] == ["a", "a (2 times in a row)", None, "a (4 times in a row)", None]
    assert folded.error("b") == "b"
    assert folded.good() is None
    assert folded.error("b") == "b"
    folded.error("b")
    assert folded.good() == "well again, after 2 failures in a row"


def test_lasting_note_is_shown_once() -> None:
    folded = Folded()
    one, two = "one", "two"
    assert list(folded.notes([one])) == ["one"]
    assert list(folded.notes([one, two, two])) == ["two"]
    assert list(folded.notes([])) == []
    assert list(folded.notes([one])) == ["one"]


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
    assert kind_of(error) == kind
    assert kind is None or kind in KINDS


def policy_file(path: Path) -> PolicyFile:
    return PolicyFile(lambda: Selection(load_policy(path)), settles_s=1e-9)  # two looks in a row


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
    path = tmp_path / "policy.yaml"
    file = policy_file(path)
    looks = []
    for text in texts:
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        looks.append(file.look())
    assert [one.hold is not None for one in looks] == held
    assert [one.broken is not None for one in looks] == broken
    assert file.valid != broken[-1]


def test_file_broken_from_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(BROKEN)
    with pytest.raises(PolicyError):
        policy_file(tmp_path / "policy.yaml").look()


@pytest.mark.parametrize("text", [HELD, BROKEN, None])
def test_file_changed_during_a_pass_stops_it_and_settles_again(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = policy_file(path)
    digest = file.look().selection.policy.digest
    assert file.again(digest).policy.digest == digest
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(StopError):
        file.again(digest)
    path.write_text(GOOD)
    assert file.look().hold is not None, "it was another text in between"
    assert file.look().hold is None


def test_signal_waits_for_the_critical_section() -> None:
    done = []

    def work(ending: Ending, number: signal.Signals) -> None:
        with ending.uninterrupted():
            signal.raise_signal(number)
            done.append("finished")

    with Ending().heard() as ending:
        with pytest.raises(KeyboardInterrupt):
            work(ending, signal.SIGTERM)
        assert done == ["finished"]
        assert ending.asked
        with pytest.raises(KeyboardInterrupt):  # a second one does not wait
            work(ending, signal.SIGINT)
    assert done == ["finished"]


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
    where = _address(str(option.default))
    assert where is not None
    assert ipaddress.ip_address(where[0]).is_loopback
    server = Server(where[0], 0, Board(300, lambda: True, lambda: True))
    try:
        socket.create_connection((where[0], server.port), timeout=5).close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", server.port), timeout=5)
    finally:
        server.close()


@pytest.mark.parametrize("text", ["", "9308", ":9308", "host:", "host:x", "host:65536", "host:-1", "host:٣"])
def test_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises((UsageError, typer.BadParameter)):
        _address(text)


def test_changed_file_is_not_trusted_however_soon_it_is_read_again() -> None:
    """An instance that has just become the leader looks again within a moment."""
    texts = ["retention.ms: 7d", "retention.ms: 1d"]

    def load() -> Selection:
        text = f"version: 1\ntopics: [{{match: a, {texts[0]}}}]"
        return Selection(parse_policy(text, "p.yaml", f"sha256:{texts[0]}"))

    file = PolicyFile(load)
    assert file.look().hold is None
    del texts[0]
    assert [file.look().hold is None for _ in range(3)] == [False] * 3
