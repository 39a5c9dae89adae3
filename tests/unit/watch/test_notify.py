"""Posts to a webhook: what they say, and that a webhook that fails costs one line (docs/watch.md, Notifications)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from retention_cli.brokers.election import Candidate
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.urls import EVENTS, NotifyRules
from retention_cli.trim.report import TrimReport, TrimRow
from retention_cli.watch import board as module
from retention_cli.watch.board import Board, Server
from retention_cli.watch.leader import Leadership
from retention_cli.watch.notify import DAY_MS, TIMEOUT_S, Held, Notice, Notifier, body, of_report
from tests.support.facts import known
from tests.support.http_server import Webhook
from tests.support.plans import row
from tests.support.says import refusal, says
from tests.support.world import wait_until

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
        for url in ("file:hook", "env:HOOK", hook.url):
            text = f"version: 1\nnotify: {{url: '{url}'}}\ntopics: [{{match: t, retention.ms: 1d}}]\n"
            rules = parse_policy(text, str(tmp_path / "policy.yaml"), "").notify
            assert (rules.events, posted(rules, Notice("refused", "too much"))[0]) == (EVENTS, [])
    assert (hook.events(), posted(NotifyRules(), Notice("failed", "x"))[0]) == (["refused"] * 3, [])


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
    return sum(one.name == "kretain-http" for one in threading.enumerate())


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
    monkeypatch.setattr(module, "_MOST_S", 1.0)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as peer:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 5:
                peer.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 3


def test_client_that_reads_nothing_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_S", 1.0)

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
