"""A profile on the screen: a topic's records over time, and any oddities."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, Final

from kretain.options.common import Output
from kretain.render import data, histogram
from kretain.render.kit import screen
from kretain.render.kit.text import count, size
from retention_cli.advise.format import moment, span
from retention_cli.core.model import TopicPartition
from retention_cli.profile.reading import Profile, TopicHours
from retention_cli.profile.rows import COLUMNS, all_rows, as_json, head
from retention_cli.profile.summary import RETENTIONS_MS, At, Kept, Summary, binned, summarize

_WIDTH_IN_A_PIPE: Final = 80
_WIDEST: Final = 120


def print_profile(found: Profile, output: Output, *, of_bytes: bool) -> None:
    """Print a picture per topic, or rows for scripts."""
    match output:
        case Output.table:
            for topic in found.topics.values():
                _draw(found, topic, of_bytes=of_bytes)
            screen.say("Sizes are those of keys, values and headers, uncompressed; a disk may hold less.", "dim")
        case Output.json:
            rows = (as_json(row) for row in all_rows(found.topics.values()))
            data.print_json(_head(found), "rows", rows)
        case Output.yaml:
            data.print_yaml({**_head(found), "rows": [as_json(row) for row in all_rows(found.topics.values())]})
        case Output.csv:
            data.print_csv(COLUMNS, (as_json(row) for row in all_rows(found.topics.values())))


def _draw(found: Profile, topic: TopicHours, *, of_bytes: bool) -> None:
    summary = summarize(topic.partitions)
    parts = [count(summary.records, "record"), size(summary.size_bytes), count(len(topic.partitions), "partition")]
    if topic.by != "timestamp":
        parts.append(f"by {topic.by}")
    if missing := {one.tp for one in found.unread if one.tp.topic == topic.name}:
        parts.append(f"partial: {count(len(missing), 'partition')} not read, or not to the end")
    screen.say(f"{topic.name}  {', '.join(parts)}", "bold")
    for line in picture(summary, _width(), of_bytes=of_bytes, blocks=histogram.takes_blocks()):
        screen.say(f"  {line}" if line else "")
    for text, style in sentences(found, topic, summary):
        screen.bullet(text, style)
    screen.say()


def _width() -> int:
    if not screen.is_terminal():
        return _WIDTH_IN_A_PIPE
    return max(20, min(_WIDEST, shutil.get_terminal_size((_WIDTH_IN_A_PIPE, 24)).columns))


def picture(summary: Summary, width: int, *, of_bytes: bool, blocks: bool) -> list[str]:
    """Return a topic's hours as columns over an axis, at most ``width`` wide; empty if there are no hours."""
    room = width - 4
    bins = binned(summary, room, of_bytes=of_bytes)
    if bins is None:
        return []
    lines = histogram.columns(bins.values, room, blocks=blocks)
    drawn = len(bins.values) * max(1, min(room // len(bins.values), 4))
    most = max(bins.values)
    told = size(most) if of_bytes else count(most, "record")
    lines.append((_RULE if blocks else "-") * drawn)
    lines.append(histogram.axis(_minute(bins.start_ms), _minute(bins.end_ms), drawn))
    lines.append(f"a column is {span(bins.bin_ms)}, the highest {told}")
    if bins.left_out:
        lines.append(f"{count(bins.left_out, 'record')} far off not drawn: {_range(summary)}")
    return lines


_RULE: Final = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"


def _minute(ms: int) -> str:
    """Return a moment to the minute, for full hours."""
    return moment(ms)[:16] + "Z"


def _range(summary: Summary) -> str:
    newest = summary.newest.time_ms if summary.newest is not None else 0
    return f"all of them lie from {moment(summary.oldest_ms or 0)} to {moment(newest)}"


def sentences(found: Profile, topic: TopicHours, summary: Summary) -> Iterator[tuple[str, str | None]]:
    """Yield sentences about a topic's records, each with its color."""
    if not summary.records:
        yield "no records" + (" in that time" if _windowed(found) else ""), None
        return
    yield _order(topic, summary)
    yield from _odd(topic, summary)
    if summary.tombstones:
        yield f"tombstones: {count(summary.tombstones, 'record')} without a value", None
    kept = kept_of(found, topic, summary)
    if kept:
        since = "the newest event time" if topic.by_event_time else "now"
        told = ", ".join(f"{span(one.retention_ms)} {size(one.size_bytes)}" for one in kept)
        yield f"a retention, counted from {since}, would keep: {told}", None


def _order(topic: TopicHours, summary: Summary) -> tuple[str, str | None]:
    least = "" if summary.late_exact else "at least "
    if not summary.late and summary.late_exact:
        return "in order", None
    lag = f", by up to {span(summary.late_ms)} ({topic.name}-{summary.late_partition})" if summary.late_ms else ""
    share = _percent(100 * summary.late / summary.records)
    told = f"{least}{count(summary.late, 'record')} ({share}) older than one before them{lag}"
    return f"out of order: {told}", None


def _percent(share: float) -> str:
    return "less than 0.1 %" if share < 0.1 else f"{share:.1f} %"


def _odd(topic: TopicHours, summary: Summary) -> Iterator[tuple[str, str | None]]:
    future, far = summary.of_kind("future"), summary.furthest
    if far is not None:
        ahead = f"stamped more than {span(topic.frame.max_ahead_ms)} ahead of now"
        told = f"{count(future.records, 'record')} {ahead}, the furthest {moment(far.time_ms)} at {_at(topic, far)}"
        remedy = (
            "mend that producer; brokers refuse such stamps by message.timestamp.after.max.ms, and R2 passes them "
            "over with retention.eventtime.ignore.future: true"
        )
        yield f"future: {told}{_unit(far, topic)}: {remedy}", "red"
    ancient, first = summary.of_kind("before-2000"), summary.ancient_from
    if first is not None:
        told = f"{count(ancient.records, 'record')}, the first at {_at(topic, first)}"
        remedy = "seconds written for milliseconds? If they are right, kretain wants allow.ancient: true (G9)"
        yield f"before 2000: {told}: {remedy}", "red"
    timeless = summary.of_kind("no-time")
    if topic.source is not None and summary.unreadable:
        told = f"{count(summary.unreadable, 'record')} without one that can be read ({topic.source})"
        yield f"no event time: {told}", "yellow"
    elif timeless.records:
        yield f"no time: {count(timeless.records, 'record')} without a timestamp", "yellow"


def _at(topic: TopicHours, record: At) -> str:
    return f"{TopicPartition(topic.name, record.partition)} offset {record.offset:,}"


def _unit(record: At, topic: TopicHours) -> str:
    """Return a guess at the unit in which an implausible time was written."""
    now = topic.frame.now_ms
    for factor, unit in ((1_000, "microseconds"), (1_000_000, "nanoseconds")):
        if now / 4 < record.time_ms / factor < now * 4:
            return f" (written in {unit}?)"
    return ""


def _windowed(found: Profile) -> bool:
    return found.wanted.from_ms is not None or found.wanted.to_ms is not None


def kept_of(found: Profile, topic: TopicHours, summary: Summary) -> list[Kept]:
    """Return what each retention would keep, as far as the records that were read show it."""
    wanted = found.wanted
    since = wanted.now_ms
    if topic.by_event_time:  # R2's clock is the newest event time
        if summary.newest is None:
            return []
        since = summary.newest.time_ms
    if wanted.to_ms is not None:
        return []
    start = wanted.from_ms or 0
    return summary.kept(since, [one for one in RETENTIONS_MS if since - one >= start])


def _head(found: Profile) -> dict[str, Any]:
    return {**head(found), "topics": [_topic(found, one) for one in found.topics.values()]}


def _topic(found: Profile, topic: TopicHours) -> dict[str, Any]:
    summary = summarize(topic.partitions)
    furthest = summary.furthest
    return {
        "topic": topic.name,
        "by": topic.by,
        "partitions": len(topic.partitions),
        "records": summary.records,
        "bytes": summary.size_bytes,
        "tombstones": summary.tombstones,
        "out_of_order": summary.late,
        "out_of_order_ms": summary.late_ms,
        "out_of_order_exact": summary.late_exact,
        "future": summary.of_kind("future").records,
        "furthest": None
        if furthest is None
        else {"partition": furthest.partition, "offset": furthest.offset, "time_ms": furthest.time_ms},
        "before_2000": summary.of_kind("before-2000").records,
        "no_time": summary.of_kind("no-time").records,
        "no_event_time": summary.unreadable if topic.source is not None else None,
        "oldest_ms": summary.oldest_ms,
        "newest_ms": None if summary.newest is None else summary.newest.time_ms,
        "kept": [
            {"retention_ms": one.retention_ms, "records": one.records, "bytes": one.size_bytes}
            for one in kept_of(found, topic, summary)
        ],
    }
