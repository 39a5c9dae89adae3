"""The audit log as OpenTelemetry log records: what a collector gets, and what happens where it does not take it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from retention_cli.audit import copies, otlp
from retention_cli.audit.log import AuditLog
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from tests.unit.audit.test_rotation import day, run


class Collector:
    """A small HTTP server that keeps what it gets, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[tuple[int, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((self.path, dict(self.headers), json.loads(body)))
                status, said = outer.answers.pop(0) if outer.answers else (200, b"{}")
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/logs"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def records(self, first: int = 0) -> list[dict[str, Any]]:
        found = []
        for _path, _headers, body in self.got[first:]:
            (resource,) = body["resourceLogs"]
            (scope,) = resource["scopeLogs"]
            found += scope["logRecords"]
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """Two runs, in two files: eight lines."""
    made = AuditLog(tmp_path / "c1")
    run(made, "r1", day(1))
    run(made, "r2", day(2))
    return made


def lines_of(log: AuditLog) -> list[str]:
    files = [*sorted(log.path.parent.glob("audit-*.jsonl")), log.path]
    return [line for one in files for line in one.read_text().splitlines()]


def sent(log: AuditLog, collector: Collector, auth: str = "") -> str | None:
    return otlp.export(log, collector.url, auth, "c1", 5.0, time.monotonic() + 60)


def test_each_line_is_a_record_in_order_and_goes_once(log: AuditLog, collector: Collector) -> None:
    assert sent(log, collector) is None
    ((path, headers, body),) = collector.got
    assert (path, headers["Content-Type"]) == ("/v1/logs", "application/json")
    assert "Authorization" not in headers
    about = {one["key"]: one["value"] for one in body["resourceLogs"][0]["resource"]["attributes"]}
    assert about["service.name"] == {"stringValue": "kretain"}
    assert about["kretain.cluster.id"] == {"stringValue": "c1"}
    records = collector.records()
    assert [one["body"]["stringValue"] for one in records] == lines_of(log)
    assert records[1]["timeUnixNano"] == "1793502000000000000", "2026-11-01T03:00:00Z; 64 bits are a string in OTLP"
    assert records[1]["severityNumber"] == 9
    assert {one["key"]: one["value"] for one in records[1]["attributes"]} == {
        "kretain.run": {"stringValue": "r1"},
        "event.name": {"stringValue": "kretain.audit.batch"},
        "kretain.seq": {"intValue": "2"},
    }
    assert sent(log, collector) is None
    assert len(collector.got) == 1, "nothing is new"
    run(log, "r3", day(3))
    assert sent(log, collector) is None
    assert [one["body"]["stringValue"] for one in collector.records(1)] == lines_of(log)[8:]


@pytest.mark.parametrize("status", [204, 307, 400, 401, 429, 503])
def test_lines_that_were_not_taken_are_sent_the_next_time(
    log: AuditLog, collector: Collector, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", 3)
    collector.answers = [(200, b"{}"), (status, b"")]
    said = sent(log, collector)
    assert (
        said
        == f"{collector.url} answered with HTTP status {status}; the next trim sends the lines that {collector.url} lacks"
    )
    assert len(collector.got) == 2
    assert sent(log, collector) is None
    assert {path for path, _headers, _body in collector.got} == {"/v1/logs"}
    assert [one["body"]["stringValue"] for one in [*collector.records()[:3], *collector.records(2)]] == lines_of(log)


def test_what_a_collector_refuses_for_good_is_told_and_not_sent_again(log: AuditLog, collector: Collector) -> None:
    collector.answers = [(200, b'{"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "no"}}')]
    assert sent(log, collector) == f"{collector.url} refused 3 of the lines for good: they are in the log alone"
    assert sent(log, collector) is None
    assert len(collector.got) == 1


def test_a_collector_that_is_away_is_told_in_our_words(log: AuditLog, collector: Collector) -> None:
    said = otlp.export(log, "http://127.0.0.1:9/v1/logs", "", "c1", 5.0, time.monotonic() + 60)
    assert said is not None
    assert said.startswith("http://127.0.0.1:9/v1/logs can't be reached: Connection refused; the next trim")


def test_a_token_comes_from_its_file_and_stands_nowhere_else(
    log: AuditLog, collector: Collector, tmp_path: Path
) -> None:
    auth = tmp_path / "token"
    assert f"otlp.auth.file {auth} can't be read: No such file" in (sent(log, collector, str(auth)) or "")
    for wrong in ("Bearer a\nX: b", "", "Bearer \xe9"):
        auth.write_text(wrong)
        assert "is not one line of ASCII" in (sent(log, collector, str(auth)) or "")
    assert collector.got == []
    auth.write_text("Bearer geheim-4711\n")
    collector.answers = [(401, b"geheim-4711")]
    assert "geheim" not in (sent(log, collector, str(auth)) or "geheim")
    assert sent(log, collector, str(auth)) is None
    assert [headers["Authorization"] for _path, headers, _body in collector.got] == ["Bearer geheim-4711"] * 2
    for file in log.path.parent.iterdir():
        assert "geheim" not in file.read_text()


def test_another_collector_gets_the_whole_log(log: AuditLog, collector: Collector) -> None:
    sent(log, collector)
    assert otlp.export(log, f"{collector.url}2", "", "c1", 5.0, time.monotonic() + 60) is None
    assert [one["body"]["stringValue"] for one in collector.records(1)] == lines_of(log)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("otlp: ftp://h/", "is not a URL such as"),
        ("otlp: 'http://h:99999/'", "is not a URL such as"),
        ("otlp: 'https://me:secret-1@h/v1/logs'", "a token belongs into otlp.auth.file"),
        ("otlp: 'https://h/v1/logs?key=secret-1'", "a token belongs into otlp.auth.file"),
        ("otlp.auth.file: token", "otlp is missing"),
        ("topic: _kretain_policy", "has a use of its own"),
        ("topic: __consumer_offsets", "has a use of its own"),
        ("topic: 'a b'", "is not a topic's name"),
        ("max.bytes: 0", "is too small"),
        ("max.size: 1MiB", "is not a key here"),
    ],
)
def test_a_wrong_key_of_audit_is_named_without_what_may_be_secret(keys: str, words: str) -> None:
    text = f"version: 1\naudit: {{{keys}}}\ntopics: [{{match: t, retention.ms: 1d}}]\n"
    with pytest.raises(PolicyError, match=words) as caught:
        parse_policy(text, "p.yaml", "d")
    assert "secret-1" not in str(caught.value)
    assert "p.yaml:2" in str(caught.value)


def test_the_keys_of_audit_are_read(tmp_path: Path) -> None:
    text = "version: 1\naudit: {max.bytes: 1MiB, topic: ops, otlp: 'https://h/v1/logs', otlp.auth.file: token}\n"
    rules = parse_policy(f"{text}topics: [{{match: t, retention.ms: 1d}}]\n", str(tmp_path / "p.yaml"), "d").audit
    assert (rules.max_bytes, rules.topic, rules.otlp) == (1 << 20, "ops", "https://h/v1/logs")
    assert rules.otlp_auth_file == str(tmp_path / "token")


def test_a_collector_that_drips_its_answer_costs_one_time_out(log: AuditLog) -> None:
    """It held the trim lock for ever."""

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            while True:
                peer.sendall(b"H")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        url, began = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/logs", time.monotonic()
        said = otlp.export(log, url, "", "c1", 0.5, time.monotonic() + 60)
        assert time.monotonic() - began < 2
    assert said is not None
    assert said.startswith(f"{url} can't be reached: not read within 0.5 s (timeout); the next trim")
