"""Whether what went was allowed to go, and what was said is so, by what producers and consumers did. Pure, and nothing of kretain's is used.

What no client can see (docs/rules.md) is left out where it is counted, by its name: a rewind, or a new topic of the same name,
between the recheck and the broker's answer; a deposed coordinator that still answers.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.world import now_ms

Log = tuple[str, int]
"""A topic's id and a partition's index: a recreated topic is another log."""

LATE_MS: Final = 30_000
"""How long a request that nobody answered may still be on its way: a cut lasts for less."""


@dataclass(slots=True)
class Record:
    """One record that a broker has taken. Times are Unix ms of this machine.

    ``ended`` is when the end of its transaction was asked for, None while that is open; without a transaction: ``sent``.
    """

    value: bytes
    stamp: int
    sent: int
    ended: int | None


@dataclass(slots=True)
class Commit:
    """``acknowledged`` is None where no answer came (yet): it may be in force at once, late or never."""

    sent: int
    offsets: Mapping[Log, int]
    acknowledged: int | None = None

    @property
    def settled(self) -> int:
        """From when on it can't take effect any more."""
        return self.sent + LATE_MS if self.acknowledged is None else self.acknowledged


def _left_by(commits: Iterable[Commit]) -> dict[Log, int]:
    """The last acknowledged position on each log."""
    return {log: offset for one in commits if one.acknowledged is not None for log, offset in one.offsets.items()}


class Commits:
    """One group's commits in the order in which they were made."""

    def __init__(self) -> None:
        self._done: list[Commit] = []

    def sending(self, offsets: Mapping[Log, int]) -> Commit:
        """Write down a commit before it is sent; the caller enters when it was acknowledged."""
        self._done.append(Commit(now_ms(), dict(offsets)))
        return self._done[-1]

    def __len__(self) -> int:
        return sum(one.acknowledged is not None for one in self._done)

    def last(self) -> dict[Log, int]:
        """The last acknowledged position on each log."""
        return _left_by(self._done.copy())

    def most(self, log: Log, began: int, ended: int) -> int | None:
        """The largest position that a reading between two moments may have found; None: no commit was there."""
        ours = [one for one in self._done.copy() if log in one.offsets]
        found = []
        for number, one in enumerate(ours):
            later = (two.acknowledged for two in ours[number + 1 :] if two.sent >= one.settled)
            over = next((at for at in later if at is not None), None)
            if one.sent <= ended and (over is None or over >= began):
                found.append(one.offsets[log])
        return max(found, default=None)

    def forget_before(self, at: int) -> None:
        """Drop what was long over before a moment, but for where it left the group."""
        over = [one for one in self._done if one.sent < at - 2 * LATE_MS]
        left = _left_by(over)
        if left:
            self._done[: len(over)] = [Commit(0, left, 0)]


@dataclass
class Truth:
    """All that is known. Threads add to it; the judge looks at copies.

    Args:
        partitions: how many partitions each topic that is written to has by now.
        ids: the id of each topic.
        commits: by group.
    """

    partitions: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commits] = field(default_factory=dict)
    _records: dict[Log, dict[int, Record]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    written: int = 0

    def log(self, topic: str, partition: int) -> Log:
        return self.ids[topic], partition

    def took(self, log: Log, offset: int, record: Record) -> None:
        """A broker has acknowledged it."""
        with self._lock:
            self._records.setdefault(log, {})[offset] = record
            self.written += 1

    def end(self, log: Log) -> int:
        """Behind the last record that is known."""
        with self._lock:
            return max(self._records.get(log, ()), default=-1) + 1

    def records(self, log: Log) -> dict[int, Record]:
        with self._lock:
            return dict(self._records.get(log, {}))

    def forget(self, starts: Mapping[Log, int]) -> None:
        """Drop the records that are gone, and judged."""
        with self._lock:
            for log, start in starts.items():
                ours = self._records.get(log, {})
                for offset in [one for one in ours if one < start]:
                    if len(ours) > 1:  # the last one says where the log ends
                        del ours[offset]


@dataclass(frozen=True)
class Promise:
    """What the policy protects on one topic.

    Args:
        groups: who must have read it before it goes; None: nobody has to (R4).
        stamped_ms: how old its stamp must be.
        written_ms: how long ago it must have been written (G3).
        frozen: nothing may go at all (G7).
    """

    groups: tuple[str, ...] | None
    stamped_ms: int = 0
    written_ms: int = 0
    frozen: bool = False


@dataclass(frozen=True)
class Sent:
    """One partition of one announced batch: what kretain was about to ask for, and the time of the reading behind it."""

    run: str
    topic: str
    log: Log
    began: int
    at: int
    start: int
    floor: int | None
    target: int
    outcome: str | None

    def __str__(self) -> str:
        return f"run {self.run}: {self.topic}-{self.log[1]} of {self.log[0]} from {self.start} to {self.target}"


def sent_in(events: Sequence[Mapping[str, Any]]) -> Iterator[Sent]:
    """Read the audit log's announcements. A batch's recheck began no earlier than its run's first line."""
    began: dict[str, int] = {}
    outcomes = {
        (event["run"], event["batch"], row["topic"], row["partition"]): row["outcome"]
        for event in events
        if event["event"] == "result"
        for row in event["partitions"]
    }
    for event in events:
        run, at = event["run"], round(dt.datetime.fromisoformat(event["at"]).timestamp() * 1000)
        if event["event"] == "run":
            began[run] = at
        elif event["event"] == "batch":
            for row in event["partitions"]:
                log = (row["topic_id"], row["partition"])
                outcome = outcomes.get((run, event["batch"], row["topic"], row["partition"]))
                span = (row["log_start"], row["min_commit"], row["target"])
                yield Sent(run, row["topic"], log, began[run], at, *span, outcome)


def breaches(
    sent: Sent, promise: Promise, commits: Mapping[str, Commits], records: Mapping[int, Record], since: int | None
) -> list[str]:
    """Return what a batch asked for although the policy protects it.

    ``since``: a coordinator may have been deposed without knowing it since then, and answers with what was true before.
    """
    if promise.frozen:
        return [f"{sent}: its topic is on hold"]
    found = []
    began = sent.began if since is None else min(since, sent.began)
    if promise.groups is not None:
        stood = {group: commits[group].most(sent.log, began, sent.at) for group in promise.groups}
        if any(one is None or sent.target > one for one in stood.values()):
            found.append(f"{sent}: its consumers stood at {stood} at the most")
        if sent.floor is None or sent.target > sent.floor:
            found.append(f"{sent}: beyond the floor {sent.floor} that it names")
    for offset in sorted(one for one in records if sent.start <= one < sent.target):
        record = records[offset]
        wrong = {
            f"{offset} is stamped {sent.at - record.stamp} ms before, too young": (
                record.stamp > sent.at - promise.stamped_ms
            ),
            f"{offset} was written {sent.at - record.sent} ms before, too late": (
                record.sent > sent.at - promise.written_ms
            ),
            f"the transaction of {offset} was open": record.ended is None or record.ended > sent.at,
        }
        found += [f"{sent}: {text}" for text, is_so in wrong.items() if is_so]
    return found[:5]


def unexplained(
    starts: Mapping[Log, int], sent: Collection[Sent], topics: Mapping[Log, str], began: Mapping[str, int]
) -> list[str]:
    """Return each log that begins where no announced batch asked for.

    ``began``: since when each topic exists under this id. What was on its way to the one before it hits its namesake, and no
    client can prevent that.
    """
    found = []
    for log, start in starts.items():
        asked = {one.target for one in sent if one.log == log}
        namesakes = {
            one.target
            for one in sent
            if (one.topic, one.log[1]) == (topics[log], log[1])
            and one.log != log
            and 0 <= began[log[0]] - one.at <= 40_000
        }
        if start not in {0, *asked, *namesakes}:
            found.append(f"{topics[log]}-{log[1]} of {log[0]} begins at {start}: announced were {sorted(asked)}")
    return found


def lost(
    written: Mapping[Log, Mapping[int, Record]],
    there: Mapping[Log, Mapping[int, tuple[bytes, int]]],
    starts: Mapping[Log, int],
) -> list[str]:
    """Return each acknowledged record at or behind its log's start that can't be read, or is another by now."""
    return [
        f"{log}: {offset} was {record.value[:40]!r}, and is {there[log].get(offset)}"
        for log, records in written.items()
        for offset, record in sorted(records.items())
        if offset >= starts[log] and there[log].get(offset) != (record.value, record.stamp)
    ]


def untrue(
    report: Mapping[str, Any],
    sent: Collection[Sent],
    before: Mapping[Log, int],
    after: Mapping[Log, int],
    truth: Truth,
    *,
    whole: bool,
) -> list[str]:
    """Return what a report of a trim says that is not so. ``whole``: no broker died, so that what was done stays done."""
    found = []
    records = 0
    ours = {one.log: one for one in sent if one.run == report["run"]}
    for row in report["partitions"]:
        log = truth.log(row["topic"], row["partition"])
        if log not in before or log not in after:
            continue  # the topic was recreated meanwhile, or the partition is new
        start, now, outcome = before[log], after[log], row["outcome"]
        if outcome == "trimmed":
            records += row["records"]
            asked = ours.get(log)
            wrong = {
                f"the audit log has {asked}": (
                    asked is None or (asked.target, asked.outcome) != (row["target"], "trimmed")
                ),
                "it does not begin there": now > row["target"] or (whole and now != row["target"]),
                "a wrong number of records": whole and row["records"] != row["target"] - start,
            }
        elif outcome == "unverified":
            wrong = {"neither here nor there": now not in (start, row["target"])}
        elif outcome in ("held", "unchanged", "failed"):
            wrong = {
                "it moved": whole and now != start,
                "no reason": outcome != "unchanged" and not row["reasons"],
            }
        else:
            wrong = {"no outcome": True}
        place = f"{row['topic']}-{row['partition']} from {start}, now {now}: {row}"
        found += [f"{text}: {place}" for text, is_so in wrong.items() if is_so]
    known = all(truth.log(row["topic"], row["partition"]) in before for row in report["partitions"])
    if known and records != report["totals"]["records"]:
        found.append(f"totals of {report['totals']} for rows of {records} records")
    return found
