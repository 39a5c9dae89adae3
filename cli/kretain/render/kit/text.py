"""Format numbers and lists as text, the same in every table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retention_cli.core.model import TopicPartition
from retention_cli.core.units import format_bytes


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 record``, ``1,200 records``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def number(value: int | None) -> str:
    """Return a number with thousands separators, a dash for None."""
    return "—" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return bytes in binary units, a question mark if unknown."""
    return "?" if value is None else format_bytes(value)


def about(ms: int) -> str:
    """Return a time span in its largest unit: ``12 d``, ``5 h``, ``0 min``; beyond ten years, only that it is."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000)):
        if ms >= 2 * length:
            days = ms // length
            return "> 10 years" if unit == "d" and days > 3652 else f"{days:,} {unit}"
    return f"{ms // 60_000} min"


def quantity(records: int, size_bytes: int | None, verb: str, *, exact: bool = False) -> str:
    """Return ``1,200 records trimmed, about 1.2 MiB of the leaders' logs``; no bytes if unknown."""
    about = "" if size_bytes is None else f", {'' if exact else 'about '}{size(size_bytes)} of the leaders' logs"
    return f"{count(records, 'record')} {verb}{about}"


NAMED_TOPICS = 6
"""At most this many topics are named, the others counted."""


def partitions(tps: Iterable[TopicPartition], of_topics: int | None = None) -> str:
    """Return partitions by topic with runs joined: ``orders 0-3, 7; payments 0``.

    ``of_topics`` is the total number of topics, if these are only the first few's partitions.
    """
    by_topic: dict[str, list[int]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    shown = [f"{topic} {runs(sorted(numbers))}" for topic, numbers in list(by_topic.items())[:NAMED_TOPICS]]
    more = (of_topics or len(by_topic)) - len(shown)
    return "; ".join(shown) + (f"; and {count(more, 'more topic')}" if more else "")


def runs(numbers: Sequence[int], most: int = 12) -> str:
    """Return ``0-3, 7`` for 0, 1, 2, 3, 7."""
    spans: list[list[int]] = []
    for one in numbers:
        if spans and one == spans[-1][1] + 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    text = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:most]]
    if len(spans) > most:
        text.append(f"… ({len(numbers):,} in all)")
    return ", ".join(text)
