"""Whether what went was allowed to go, and whether what was said is so. Pure, and nothing of kretain's is used.

What no client can see (docs/rules.md) is left out where it is counted, by its name: a rewind, or a new topic of the same name,
between the recheck and the broker's answer; a deposed coordinator that still answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kafka.faults.truth import Commits, Log, Record, Truth, lowest


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


def unix_ms(timestamp: str) -> int:
    return round(dt.datetime.fromisoformat(timestamp).timestamp() * 1000)


def sent_in(events: Sequence[Mapping[str, Any]]) -> Iterator[Sent]:
    """Read the audit log's announcements. A batch's recheck began no earlier than its run's first line."""
    began: dict[str, int] = {}
    outcomes: dict[tuple[str, int, str, int], str] = {}
    for event in events:
        if event["event"] == "result":
            for row in event["partitions"]:
                outcomes[event["run"], event["batch"], row["topic"], row["partition"]] = row["outcome"]
    for event in events:
        run, at = event["run"], unix_ms(event["at"])
        if event["event"] == "run":
            began[run] = at
        elif event["event"] == "batch":
            for row in event["partitions"]:
                log = (row["topic_id"], row["partition"])
                outcome = outcomes.get((run, event["batch"], row["topic"], row["partition"]))
                floor, target = row["min_commit"], row["target"]
                yield Sent(run, row["topic"], log, began[run], at, row["log_start"], floor, target, outcome)


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
        floor = lowest(stood.values())
        if floor is None or sent.target > floor:
            found.append(f"{sent}: its consumers stood at {stood} at the most")
        if sent.floor is None or sent.target > sent.floor:
            found.append(f"{sent}: beyond the floor {sent.floor} that it names")
    for offset, record in sorted(records.items()):
        if not sent.start <= offset < sent.target:
            continue
        if record.stamp > sent.at - promise.stamped_ms:
            found.append(f"{sent}: {offset} is stamped {sent.at - record.stamp} ms before, too young")
        if record.sent > sent.at - promise.written_ms:
            found.append(f"{sent}: {offset} was written {sent.at - record.sent} ms before, too late")
        if record.ended is None or record.ended > sent.at:
            found.append(f"{sent}: the transaction of {offset} was open")
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
    found = []
    for log, records in written.items():
        for offset, record in sorted(records.items()):
            if offset >= starts[log] and there[log].get(offset) != (record.value, record.stamp):
                found.append(f"{log}: {offset} was {record.value[:40]!r}, and is {there[log].get(offset)}")
    return found


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
        told = f"{row['topic']}-{row['partition']} from {start}, now {now}: {row}"
        if outcome == "trimmed":
            records += row["records"]
            asked = ours.get(log)
            if asked is None or (asked.target, asked.outcome) != (row["target"], "trimmed"):
                found.append(f"the audit log has {asked}: {told}")
            if (now != row["target"] and whole) or now > row["target"]:
                found.append(f"it does not begin there: {told}")
            if row["records"] != row["target"] - start and whole:
                found.append(f"a wrong number of records: {told}")
        elif outcome == "unverified":
            if now not in (start, row["target"]):
                found.append(f"neither here nor there: {told}")
        elif outcome in ("held", "unchanged", "failed"):
            if now != start and whole:
                found.append(f"it moved: {told}")
            if outcome != "unchanged" and not row["reasons"]:
                found.append(f"no reason: {told}")
        else:
            found.append(f"no outcome: {told}")
    known = all(truth.log(row["topic"], row["partition"]) in before for row in report["partitions"])
    if known and records != report["totals"]["records"]:
        found.append(f"totals of {report['totals']} for rows of {records} records")
    return found
