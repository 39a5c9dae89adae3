"""A forecast in money: by topic, by label, and by the consumer that keeps records. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from retention_cli.advise.facts import TopicSettings
from retention_cli.audit.log import Run
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, Unknown, certain, or_unknown
from retention_cli.core.units import parse_time_ms
from retention_cli.forecast.steady import PartitionForecast, Seen, product, saved
from retention_cli.forecast.value import NOTHING, Bill, Bills, Span, TopicBill, TopicForecast, total
from retention_cli.policy.settings import Settings

MONTH_MS: Final = 30 * 86_400_000
GIB: Final = 2**30
_NO_AUDIT: Final = Unknown.because("size", "the audit log has a trim of unknown size")


def by_label(bills: Bills) -> dict[str, tuple[int, Bill]]:
    """Return the numbers of topics and their sums by ``name=value``, sorted."""
    found = by_key((f"{name}={value}", one.bill) for one in bills.topics for name, value in one.labels.items())
    return {label: (len(some), total_of(some)) for label, some in sorted(found.items())}


def by_consumer(bills: Bills) -> list[tuple[str, Span]]:
    """Return what each consumer costs a month by being behind, the most first."""
    found = by_key(pair for one in bills.topics for pair in one.by_consumer.items())
    sums = ((name, added(spans)) for name, spans in found.items())
    return sorted((one for one in sums if one[1] != NOTHING), key=lambda one: (-one[1].low, one[0]))


def stayed(
    runs: Iterable[Run],
    ids: Mapping[str, Maybe[str]],
    limits: Mapping[str, TopicSettings],
    settings: Mapping[str, Settings],
    digest: str | None,
    now_ms: int,
) -> dict[str, Maybe[float]]:
    """Return how many bytes trims have saved for how many ms, at most, by topic (docs/forecast.md, Money).

    Args:
        runs: the audit log's.
        ids: the ids of the forecast's topics: others, and former topics of the same name, do not count.
        limits: these topics' live limits.
        settings: the policy's for them.
        digest: the policy's: of a run with the same one, a rule's time is known. None: none is.
        now_ms: now (Unix ms).
    """
    found: dict[str, Maybe[float]] = {name: one if isinstance(one, Unknown) else 0.0 for name, one in ids.items()}
    lives = {name: _life_ms(limits[name]) for name in ids}
    for run in runs:
        policy = run.begun["policy"]
        same = policy.get("digest") == digest and not policy.get("flags")
        for batch, row, result in run.announced():
            name = row["topic"]
            if name in ids and result.get("outcome") == "trimmed" and row.get("topic_id") == ids[name]:
                ago_ms = max(0, now_ms - parse_time_ms(batch["at"]))
                age_ms = _least_age_ms(row.get("rule"), settings[name]) if same else 0
                size = _NO_AUDIT if row["bytes"] is None else row["bytes"]
                found[name] = _stayed(found[name], size, ago_ms, lives[name], age_ms)
    return found


@or_unknown
def _stayed(before: Maybe[float], size: Maybe[int], ago_ms: int, life: Maybe[float], age_ms: int) -> float:
    return certain(before) + min(ago_ms, max(0, certain(life) - age_ms)) * certain(size)


def topic_bill(
    one: TopicForecast,
    rows: Sequence[tuple[Seen, PartitionForecast]],
    labels: Mapping[str, str],
    price: Maybe[float],
    byte_ms: Maybe[float],
) -> TopicBill:
    """Return a topic's money.

    Args:
        one: its forecast.
        rows: its partitions.
        labels: its labels.
        price: what a GiB of one replica costs a month, with all its replicas.
        byte_ms: what past trims have saved (:func:`stayed`).
    """
    behind = by_key(
        (seen.facts.floor.by, _priced(product(part.unread, part.each), price))
        for seen, part in rows
        if not isinstance(seen.facts.floor, Unknown) and part.unread != NOTHING
    )
    by_consumer = {name: _sum(spans) for name, spans in behind.items()}
    bill = Bill(
        _priced(one.now.size_bytes, price),
        _priced(byte_ms if isinstance(byte_ms, Unknown) else Span(0.0, byte_ms / MONTH_MS), price),
        _priced(saved(one.alone, one.policy).size_bytes, price),
        _sum(by_consumer.values()),
    )
    return TopicBill(one.name, labels, bill, by_consumer)


def added(amounts: Iterable[Maybe[Span]]) -> Span:
    """Return a sum: without an upper bound if a part is unknown or without end."""
    return total(Span(0.0, math.inf) if isinstance(one, Unknown) or one.endless else one for one in amounts)


def total_of(bills: Iterable[Bill]) -> Bill:
    """Return the sums; of no bill they are nothing."""
    return Bill(*map(added, zip(Bill(NOTHING, NOTHING, NOTHING, NOTHING), *bills, strict=True)))


@or_unknown
def _sum(amounts: Iterable[Maybe[Span]]) -> Span:
    return added([certain(one) for one in amounts])


@or_unknown
def _priced(size_bytes: Maybe[Span], price: Maybe[float]) -> Span:
    return certain(size_bytes).times(Span.of(certain(price) / GIB))


@or_unknown
def _life_ms(limits: TopicSettings) -> float:
    """Return how long brokers keep a record at most: by ``retention.ms``, in complete segments, until they check."""
    retention_ms = certain(limits.retention_ms) if certain(limits.deletes) else None
    if retention_ms is None:
        return math.inf
    return float(retention_ms + certain(limits.segment_ms) + certain(limits.check_interval_ms))


def _least_age_ms(rule: Any, settings: Settings) -> int:
    """Return how old a record was at least that this rule trimmed."""
    return {Code.R1.rule: settings.consumed_after_ms, Code.R4.rule: settings.forced_age_ms}.get(rule) or 0
