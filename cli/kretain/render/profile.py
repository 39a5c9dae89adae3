"""A profile: a picture of each topic's records over time, and any oddities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kretain.render.output import BLANK, Line, Part, joined, picture_width, show, size
from retention_cli.advise.facts import moment, span
from retention_cli.core.model import TopicPartition
from retention_cli.core.units import count
from retention_cli.profile.hours import RETENTIONS_MS, Amount, At, Summary, binned, summarize
from retention_cli.profile.reading import COLUMNS, Profile, TopicHours, all_rows, as_json, head

HEIGHT: Final = 5
AXIS: Final = 12
"""The width of the axis on the left: a number of records or bytes, and a line."""
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_RULE: Final = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"


def print_profile(found: Profile, output: str, *, of_bytes: bool) -> None:
    """Print a picture per topic, or rows for scripts."""
    topics = found.topics.values()
    show(
        output,
        {**head(found), "topics": [_topic(found, one) for one in topics]} if output in ("json", "yaml") else {},
        "rows",
        map(as_json, all_rows(topics)),
        lambda: _profile(found, of_bytes=of_bytes),
        COLUMNS,
    )


def _profile(found: Profile, *, of_bytes: bool) -> Iterator[Part]:
    width = picture_width(80)
    for topic in found.topics.values():
        summary = summarize(topic.partitions)
        missing = len({one.tp for one in found.unread if one.tp.topic == topic.name})
        parts = joined(
            count(summary.records, "record"),
            size(summary.size_bytes),
            count(len(topic.partitions), "partition"),
            topic.by != "timestamp" and f"by {topic.by}",
            missing and f"partial: {count(missing, 'partition')} not read, or not to the end",
            by=", ",
        )
        yield from (
            Line(f"{topic.name}  {parts}", "bold"),
            *(Line(f"  {line}" if line else "") for line in picture(summary, width, of_bytes=of_bytes)),
            *(Line(text, style, 2) for text, style in sentences(found, topic, summary)),
            BLANK,
        )
    yield Line("Sizes are of uncompressed keys, values and headers; on disk they may be smaller.", "dim")


def picture(summary: Summary, width: int, *, of_bytes: bool) -> list[str]:
    """Return a topic's hours as columns between two axes, at most ``width`` wide; empty if there are no hours."""
    room = width - 4 - AXIS
    bins = binned(summary, room, of_bytes=of_bytes)
    if bins is None:
        return []
    drawn = len(bins.values) * max(1, min(room // len(bins.values), 4))
    most = max(bins.values)
    start, end = (moment(ms)[:16] + "Z" for ms in (bins.start_ms, bins.end_ms))  # full hours, to the minute
    times = (summary.oldest_ms or 0, summary.newest.time_ms if summary.newest is not None else 0)
    lies = f"all of them lie from {' to '.join(map(moment, times))}"
    labels = [size(most) if of_bytes else f"{most:,}", *[""] * (HEIGHT - 1)]
    return [
        *(
            f"{label.rjust(AXIS - 2)} {'┤' if label else '│'}{line}"
            for label, line in zip(labels, columns_of(bins.values, room), strict=True)
        ),
        f"{'0'.rjust(AXIS - 2)} └{_RULE * drawn}",
        " " * AXIS + start + " " * max(2, drawn - len(start) - len(end)) + end,
        f"one column is {span(bins.bin_ms)}, the highest has {size(most) if of_bytes else count(most, 'record')}",
        *([f"{count(bins.left_out, 'record')} outside this range, not drawn: {lies}"] if bins.left_out else []),
    ]


def columns_of(values: Sequence[int], width: int, *, height: int = HEIGHT) -> list[str]:
    """Return lines, the top first, in which each value is a column of equal width; together at most ``width`` wide.

    A value above zero is always visible.
    """
    most, step = max(values, default=0), len(_BLOCKS) - 1
    heights = [0 if one <= 0 else max(1, round(one * step * height / most)) for one in values]
    wide = max(1, min(width // max(1, len(values)), 4))
    return [
        "".join(_BLOCKS[min(max(one - row * step, 0), step)] * wide for one in heights).rstrip()
        for row in range(height - 1, -1, -1)
    ]


def sentences(found: Profile, topic: TopicHours, summary: Summary) -> Iterator[tuple[str, str | None]]:
    """Yield sentences about a topic's records, each with its color."""
    if not summary.records:
        everything = found.wanted.from_ms is None and found.wanted.to_ms is None
        yield "no records" if everything else "no records in that time", None
        return
    yield _order(topic, summary), None
    yield from _implausible(topic, summary)
    if summary.tombstones:
        yield f"tombstones: {count(summary.tombstones, 'record')} without a value", None
    if remaining := retained_by(found, topic, summary):
        sizes = ", ".join(f"{span(retention)} {size(one.size_bytes)}" for retention, one in remaining.items())
        since = "the newest event time" if topic.by_event_time else "now"
        yield f"retention counted from {since} would keep: {sizes}", None


def _order(topic: TopicHours, summary: Summary) -> str:
    if not summary.late and summary.late_exact:
        return "in order"
    share = 100 * summary.late / summary.records
    return joined(
        f"out of order: {'' if summary.late_exact else 'at least '}{count(summary.late, 'record')} ",
        f"({'less than 0.1' if share < 0.1 else f'{share:.1f}'} %) older than an earlier record",
        summary.late_ms and f", by up to {span(summary.late_ms)} ({topic.name}-{summary.late_partition})",
    )


def _implausible(topic: TopicHours, summary: Summary) -> Iterator[tuple[str, str | None]]:
    if (far := summary.furthest) is not None:
        future = (
            f"future: {count(summary.kinds['future'].records, 'record')} stamped more than "
            f"{span(topic.frame.max_ahead_ms)} ahead of now, the furthest {moment(far.time_ms)} at "
            f"{_at(topic, far)}{_unit(far, topic)}: fix that producer; brokers refuse such timestamps with "
            "message.timestamp.after.max.ms, and R2 skips them with retention.eventtime.ignore.future: true"
        )
        yield future, "red"
    if (first := summary.ancient_from) is not None:
        ancient = (
            f"before 2000: {count(summary.kinds['before-2000'].records, 'record')}, the first at {_at(topic, first)}: "
            "seconds instead of milliseconds? If they are right, set allow.ancient: true (G9)"
        )
        yield ancient, "red"
    unreadable, timeless = count(summary.unreadable, "record"), summary.kinds["no-time"].records
    if topic.source is not None and summary.unreadable:
        yield f"no event time: {unreadable} without one that can be read ({topic.source})", "yellow"
    elif timeless:
        yield f"no time: {count(timeless, 'record')} without a timestamp", "yellow"


def _at(topic: TopicHours, record: At) -> str:
    return f"{TopicPartition(topic.name, record.partition)} offset {record.offset:,}"


def _unit(record: At, topic: TopicHours) -> str:
    """Return a guess at the unit in which an implausible time was written."""
    now = topic.frame.now_ms
    units = {"microseconds": 1_000, "nanoseconds": 1_000_000}
    fits = (unit for unit, factor in units.items() if now / 4 < record.time_ms / factor < now * 4)
    return next((f" (written in {unit}?)" for unit in fits), "")


def retained_by(found: Profile, topic: TopicHours, summary: Summary) -> dict[int, Amount]:
    """Return what each retention would keep, as far as the records that were read show it."""
    wanted, newest = found.wanted, summary.newest if topic.by_event_time else None
    if wanted.to_ms is not None or (topic.by_event_time and newest is None):
        return {}
    since = wanted.now_ms if newest is None else newest.time_ms  # R2's clock is the newest event time
    return summary.retained(since, [one for one in RETENTIONS_MS if since - one >= (wanted.from_ms or 0)])


def profile_notes(found: Profile, out: Path | None) -> list[str]:
    """Return what was not read, and where the file is."""
    unread = [
        f"{one.tp} could not be read{'' if one.reached is None else f' from offset {one.reached:,} on'}: {one.text}"
        for one in found.unread
    ]
    return [
        *found.notes,
        *(["interrupted: this shows what was read until then"] if found.interrupted else unread),
        *([f"saved in {out}{', without what could not be read' if unread else ''}"] if out is not None else []),
    ]


def _topic(found: Profile, topic: TopicHours) -> dict[str, Any]:
    summary = summarize(topic.partitions)
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
        "future": summary.kinds["future"].records,
        "furthest": None if summary.furthest is None else summary.furthest._asdict(),
        "before_2000": summary.kinds["before-2000"].records,
        "no_time": summary.kinds["no-time"].records,
        "no_event_time": summary.unreadable if topic.source is not None else None,
        "oldest_ms": summary.oldest_ms,
        "newest_ms": None if summary.newest is None else summary.newest.time_ms,
        "kept": [
            {"retention_ms": retention, "records": one.records, "bytes": one.size_bytes}
            for retention, one in retained_by(found, topic, summary).items()
        ],
    }
