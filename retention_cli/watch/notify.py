"""Post what kretain did to Slack or another webhook (docs/watch.md, Notifications).

A webhook never changes a trim: each post has its own thread and one deadline, and a failure is one line of the log.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from retention_cli.core.model import Decision
from retention_cli.core.printable import printable
from retention_cli.core.units import count, format_bytes
from retention_cli.policy.urls import Event, NotifyRules, WebhookError
from retention_cli.protect.decision import Protection
from retention_cli.trim.report import TrimReport

TIMEOUT_S: Final = 5.0
"""The time for one post, and how long the end of the process waits for the posts under way."""
DAY_MS: Final = 86_400_000
_AT_ONCE: Final = 4
_NAMED: Final = 5
_LONGEST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to post: the event, the sentence, and what programs read of it."""

    event: Event
    text: str
    cluster_id: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


def of_report(report: TrimReport) -> list[Notice]:
    """Return what to post of a trim: what it deleted, and what failed."""
    found: list[Notice] = []
    if gone := report.count("trimmed"):
        done = report.trimmed
        text = f"trimmed {amount(done.records, done.size_bytes)} of {count(gone, 'partition')}, run {report.run}"
        facts = {"run": report.run, "partitions": gone, "records": done.records, "bytes": done.size_bytes}
        found.append(Notice("trimmed", text, report.cluster_id, facts))
    failed, unverified = report.count("failed"), report.count("unverified")
    wrong = [f"{count(n, 'partition')} {word}" for n, word in ((failed, "failed"), (unverified, "unverified")) if n]
    wrong += [] if report.audit_problem is None else [f"the audit log is incomplete: {report.audit_problem}"]
    if wrong:
        facts = {"run": report.run, "failed": failed, "unverified": unverified}
        found.append(Notice("failed", f"{'; '.join(wrong)}, run {report.run}", report.cluster_id, facts))
    return found


def of_protection(made: Protection) -> list[Notice]:
    """Return what to post of a run of protect: that settings could not be changed."""
    if not made.failed:
        return []
    first, more = made.failed[0], len(made.failed) - 1
    text = f"protect: {first.setting} of topic {first.topic}: {first.problem}"
    text += f"; {count(more, 'more setting')}" if more else ""
    return [Notice("unprotected", text, made.cluster_id, {"settings": len(made.failed)})]


@dataclass(slots=True)
class Held:
    """Finds the partitions that have been on hold for a day, each once while it lasts."""

    _since_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    _posted: frozenset[tuple[str, int]] = frozenset()

    def take_in(self, decisions: Iterable[Decision], now_ms: int, cluster_id: str) -> Notice | None:
        """Take in a plan's decisions; return the notice about partitions that have now been on hold that long."""
        held = {(one.topic, one.partition): one for one in decisions if one.action == "hold"}
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in held}
        long = {key for key, since_ms in self._since_ms.items() if now_ms - since_ms >= DAY_MS}
        new = sorted(long - self._posted)
        self._posted = frozenset(long)
        if not new:
            return None
        codes = Counter(held[key].reasons[0].code for key in new if held[key].reasons)
        by_topic = Counter(topic for topic, _ in new)
        named = [f"{topic} ({count:,})" for topic, count in by_topic.most_common(_NAMED)]
        named += ["…"] if len(by_topic) > _NAMED else []
        why = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
        return Notice(
            "held",
            f"{count(len(new), 'partition')} on hold for a day: {', '.join(named)}; {why}; kretain why CODE says what "
            f"to do",
            cluster_id,
            {"partitions": len(new), "holds": dict(codes)},
        )


@dataclass(slots=True)
class Notifier:
    """Posts notices in the background.

    Args:
        name: the context or address of the cluster.
        say: prints one line about a post that failed.
    """

    name: str
    say: Callable[[str], None]
    _under_way: list[threading.Thread] = field(default_factory=list)

    def post(self, rules: NotifyRules, notice: Notice) -> None:
        """Begin to post a notice if the policy asks for it. Returns at once, and raises nothing."""
        if not rules.url or notice.event not in rules.events:
            return
        self._under_way = [one for one in self._under_way if one.is_alive()]
        if len(self._under_way) >= _AT_ONCE:
            self.say(f"not posted ({notice.event}): the webhook is too slow")
            return
        one = threading.Thread(target=self._send, args=(rules, notice), name="kretain-notify", daemon=True)
        try:
            one.start()
        except RuntimeError as error:  # no more threads
            self.say(f"not posted ({notice.event}): {error}")
        else:
            self._under_way.append(one)

    def close(self) -> None:
        """Wait for the posts under way, at most :data:`TIMEOUT_S` in total. A Ctrl-C ends the wait."""
        until = time.monotonic() + TIMEOUT_S
        with contextlib.suppress(KeyboardInterrupt):
            for one in self._under_way:
                one.join(max(0.0, until - time.monotonic()))

    def _send(self, rules: NotifyRules, notice: Notice) -> None:
        from retention_cli.core.http import HttpError, ask

        try:
            url = rules.address()
            answer = ask(
                url,
                timeout_s=TIMEOUT_S,
                most_bytes=1 << 16,
                body=json.dumps(body(url, self.name, notice)).encode(),
                headers={"Content-Type": "application/json"},
            )
            if not 200 <= answer.status < 300:
                self.say(f"not posted ({notice.event}): the webhook answered HTTP {answer.status}")
        except (HttpError, WebhookError, RuntimeError) as error:
            self.say(f"not posted ({notice.event}): {error}")


def body(url: str, name: str, notice: Notice) -> dict[str, object]:
    """Return a post's JSON. Slack gets the text alone, with what it would read as markup escaped."""
    text = printable(f"kretain, {name[:200]}: {notice.text}")[:_LONGEST]
    if (urlsplit(url).hostname or "").endswith("slack.com"):
        return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
    return {
        "text": text,
        "event": notice.event,
        "cluster": name,
        "cluster_id": notice.cluster_id or None,
        **notice.facts,
    }


def amount(records: int, size_bytes: int | None) -> str:
    """Return an amount for a sentence: ``1,200 records (90 KiB)``."""
    about = "" if size_bytes is None else f" ({format_bytes(size_bytes)})"
    return f"{count(records, 'record')}{about}"
