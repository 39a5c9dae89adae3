"""Rows of evidence: any facts at all for properties, and plain ones of a usual cluster."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

from hypothesis import strategies as st

from retention_cli.audit.log import AuditLog
from retention_cli.brokers.log_offsets import Found
from retention_cli.core.model import (
    ANCIENT_MS,
    EventMax,
    EventPrefix,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    Sample,
    Tail,
    TopicFacts,
    TopicPartition,
    Unknown,
    Usage,
    Watermark,
    known,
)
from retention_cli.core.units import timestamp
from retention_cli.decide.decision import decide
from retention_cli.evidence.checks import decided
from retention_cli.evidence.value import DiskPart, Planned, ReadTimes, RecordedDecision, Result, Row
from retention_cli.evidence.verify import verify_runs
from retention_cli.evidence.writer import recorder_for
from retention_cli.observe.floors.fold import Seen
from retention_cli.observe.request import Observation, Pass, Times
from retention_cli.policy.settings import EventSource, Settings
from tests.support.facts import HOUR, NOW

RUN = "20270115T080000Z-0001"
numbers = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
reasons = st.builds(Reason, texts, texts)
unknowns = st.builds(Unknown, st.lists(reasons, max_size=2).map(tuple))


def maybe(known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return known | unknowns


lookups = st.dictionaries(
    numbers,
    maybe(st.builds(LookUp, numbers, st.none() | reasons, st.none() | numbers, st.none() | numbers)),
    max_size=3,
)
topics = st.builds(
    TopicFacts,
    texts.filter(bool),
    maybe(texts),
    st.booleans(),
    maybe(st.frozensets(st.sampled_from(["delete", "compact"]))),
    maybe(st.integers(-1, 2**40)),
    maybe(st.sampled_from(["CreateTime", "LogAppendTime"])),
    st.booleans(),
    st.booleans(),
)
facts = st.builds(
    PartitionFacts,
    topic=topics,
    partition=st.integers(0, 2**31 - 1),
    log_start=maybe(numbers),
    high_watermark=maybe(numbers),
    last_stable_offset=maybe(numbers),
    floor=maybe(st.builds(Floor, numbers, texts, st.lists(reasons, max_size=2).map(tuple))),
    lookups=lookups,
    data_lookups=lookups,
    newest=maybe(st.none() | st.builds(EventMax, numbers, st.none() | numbers, st.booleans())),
    event_prefix=maybe(st.builds(EventPrefix, numbers, st.none() | reasons, ancient=st.none() | numbers)),
    samples=maybe(st.lists(st.builds(Sample, numbers, numbers), max_size=2)),
    stamped_below=maybe(numbers),
    clock=st.none() | unknowns,
    watched_since_ms=st.none() | numbers,
    size_bytes=maybe(numbers),
    usage=maybe(
        st.none()
        | st.builds(Usage, texts, st.floats(0, 100), st.builds(Watermark, st.floats(0, 100), st.floats(0, 1), numbers))
    ),
    tails=st.dictionaries(texts, maybe(st.builds(Tail, numbers, st.booleans())), max_size=2),
    segment_bases=maybe(st.lists(numbers, max_size=3)),
    has_leader=st.booleans(),
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
)
settings = st.builds(
    Settings,
    **{
        name: st.none() | numbers if "int" in str(kind) and "None" in str(kind) else st.from_type(kind)
        for name, kind in get_type_hints(Settings).items()
        if name
        not in ("unsettled", "event_source", "require_groups", "max_ahead_ms", "scan_records", "hold", "archive")
    },
    unsettled=st.none() | unknowns,
    event_source=st.none() | st.builds(EventSource, st.just("json"), texts),
    require_groups=st.lists(texts, max_size=2).map(tuple),
    hold=st.none() | texts,
)
rows = st.builds(
    Row,
    st.integers(1, 99),
    facts,
    settings,
    numbers,
    st.builds(ReadTimes, *[numbers] * len(ReadTimes._fields)),
    st.builds(
        Planned,
        numbers,
        st.none() | texts,
        st.none() | st.integers(0, 2**31 - 1),
        st.none() | numbers,
        numbers,
        maybe(st.none() | numbers),
    ),
    st.builds(
        RecordedDecision,
        st.sampled_from(["trim", "keep", "hold", "skip"]),
        st.none() | numbers,
        st.sampled_from([None, "consumed", "disk-usage"]),
        st.sampled_from([None, "G1", "G2"]),
        st.none() | numbers,
        st.booleans(),
    ),
    st.none() | st.builds(DiskPart, st.none() | st.tuples(numbers, reasons), st.none() | unknowns),
)


def usual(count: int, *, topics: int = 400, groups: int = 3, seed: int = 7) -> tuple[list[Row], Observation]:
    """Rows of so many partitions that R1 trims, as a usual cluster has them, and what groups have committed there."""
    draw = random.Random(seed)
    a_topic = -(-count // topics)
    kept = Settings(consumed_after_ms=HOUR, named_in_full=True)
    reads = ReadTimes(*(NOW + n for n in (0, 400, 900, 1_600, 2_900, 3_100)))
    found: list[Row] = []
    commits: dict[tuple[str, str], list[tuple[int, int, int | None]]] = {}
    for number in range(topics):
        about = TopicFacts(
            f"team-{number % 20}.orders-{number}",
            f"{draw.getrandbits(126):021x}",
            False,
            frozenset({"delete"}),
            604_800_000,
            "CreateTime",
        )
        for partition in range(a_topic):
            start = draw.randrange(2**33)
            end = start + draw.randrange(100_000, 10_000_000)
            epoch = draw.randrange(3, 6)
            lowest = end
            for group in range(groups):
                offset = end - draw.randrange(1_000)
                lowest = min(lowest, offset)
                commits.setdefault((f"group-{number % 20}-{group}", about.name), []).append((partition, offset, epoch))
            by = f"group:group-{number % 20}-0"
            old = start + draw.randrange(end - start)
            lookups = {
                NOW - HOUR: LookUp(old, None, NOW - HOUR + draw.randrange(2_000)),
                ANCIENT_MS: LookUp(start, None, NOW - draw.randrange(100 * HOUR), start),
            }
            facts = PartitionFacts(
                about,
                partition,
                start,
                end,
                end,
                Floor(lowest, by),
                lookups,
                size_bytes=(end - start) * draw.randrange(200, 900),
                leader_epoch=epoch,
            )
            said = decide(facts, kept, NOW)
            planned = Planned(said.trim_to or 0, said.topic_id, epoch, lowest - draw.randrange(500), said.unconsumed)
            found.append(Row(1, facts, kept, NOW, reads, planned, RecordedDecision.of(said)))
    return found, observation([Seen(group, topic, "commit", rows) for (group, topic), rows in commits.items()])


def drawn(row: Row, draw: random.Random, *, every: bool = False) -> Row:
    """Return a row of other rules and facts, decided: each fact near a border, or unknown. ``every`` rule, or a few."""
    one, unknown = row.facts, Unknown.because("x", "y")
    start: Any = one.log_start
    low: Any = one.floor.offset  # type: ignore[union-attr]
    end: Any = one.high_watermark

    def near(*values: int) -> int:
        return max(start - 2, draw.choice(values) + draw.randrange(-2, 3))

    minimum, age = NOW - 3 * HOUR, draw.choice([2 * HOUR, HOUR // 2])
    settings = replace(
        row.settings,
        consumed_after_ms=draw.choice([None, HOUR, HOUR, 8 * 24 * HOUR]),
        min_timestamp_ms=draw.choice([None, minimum, NOW + 1]),
        forced_age_ms=draw.choice([None, age]),
        forced_age_guarded=draw.random() < 0.5,
        unconsumed=draw.choice(["hold", "trim"]),
        allow_ancient=draw.random() < 0.2,
        allow_empty=draw.random() < 0.2,
        hold=draw.choice([None] * 9 + ["audit"]),
        named_in_full=draw.random() < 0.9,
        trim_compacted=draw.random() < 0.5,
        event_time_ms=draw.choice([None] * 9 + [HOUR]),
    )
    about = replace(
        one.topic,
        cleanup_policy=draw.choice(
            [one.topic.cleanup_policy] * 7 + [frozenset({"compact"}), frozenset({"compact", "delete"}), unknown]
        ),
        retention_ms=draw.choice([one.topic.retention_ms] * 7 + [-1, unknown]),
        topic_id=draw.choice([one.topic.topic_id] * 9 + [unknown]),
        internal=draw.random() < 0.05,
    )
    data = {minimum: LookUp(near(start, low, end)), NOW + 1: LookUp(end)}
    times: dict[int, LookUp | Unknown] = {
        NOW - after: LookUp(near(start, low, end)) for after in (HOUR, 2 * HOUR, HOUR // 2) if draw.random() < 0.9
    }
    fronts: list[LookUp | Unknown] = [*[LookUp(start)] * 9, LookUp(start + 1), unknown]
    facts = one._replace(
        topic=about,
        last_stable_offset=draw.choice([end, end, near(start, low), unknown]),
        log_start=draw.choice([start] * 9 + [unknown, end]),
        high_watermark=draw.choice([end] * 9 + [unknown]),
        floor=draw.choice([one.floor] * 5 + [unknown, Floor(start, one.floor.by)]),  # type: ignore[union-attr]
        lookups={**times, ANCIENT_MS: draw.choice(fronts)},
        data_lookups=data if draw.random() < 0.9 else {minimum: unknown},
        clock=draw.choice([None] * 9 + [unknown]),
    )
    disks = None
    if every:
        disks, rule = DiskPart(None, draw.choice([None, unknown])), draw.randrange(1, 5)
        settings = replace(
            settings,
            consumed_after_ms=HOUR if rule == 1 else None,
            event_time_ms=HOUR if rule == 2 else None,
            min_timestamp_ms=minimum if rule == 3 else None,
            forced_age_ms=age if rule == 4 else None,
            named_in_full=True,
            min_wallclock_ms=draw.choice([None, HOUR]),
            watch_first_ms=draw.choice([None, None, HOUR]),
        )
        samples = [Sample(NOW - hours * HOUR, near(start, end)) for hours in (3, 2, 0)]
        facts = facts._replace(
            topic=replace(one.topic, timestamp_type=draw.choice(["CreateTime", "LogAppendTime"])),
            newest=EventMax(minimum + HOUR, end - 1, True),
            samples=sorted(samples, key=lambda one: one.high_watermark),
            stamped_below=near(start, end),
            watched_since_ms=draw.choice([None, NOW - 2 * HOUR, NOW]),
        )
    said = decided(Row(1, facts, settings, NOW, row.reads, row.planned, row.decision, disks))
    planned = row.planned._replace(
        trim_to=said.trim_to or 0, topic_id=said.topic_id, unconsumed=said.unconsumed, min_commit=said.min_commit
    )
    return row._replace(
        facts=facts, settings=settings, decision=RecordedDecision.of(said), planned=planned, disks=disks
    )


def observation(seen: list[Seen], **more: Any) -> Observation:
    """What a recheck saw, as far as evidence of commits needs it."""
    return Observation("c", 0.0, {}, {}, {}, passes=[Pass(Times(*[0.0] * 6), seen)], **more)


def ended(topic: str, partition: int, epoch: int, offset: int) -> dict[tuple[TopicPartition, int], Found]:
    """Where a leader epoch ends."""
    return {(TopicPartition(topic, partition), epoch): Found(offset)}


def left_behind(
    folder: Path,
    rows: list[Row],
    seen: Observation,
    results: list[Result],
    run: str = RUN,
    cluster: str | None = None,
) -> None:
    """Write evidence and the audit log of a run as a trim does. ``cluster`` is in heads of files."""
    log = AuditLog(folder)
    at = {"run": run, "at": timestamp(NOW)}
    counts = {name: sum(one.outcome == name for one in results) for name in ("trimmed", "unverified")}
    trimmed = [one for one in results if one.outcome == "trimmed"]
    sizes = [one.size_bytes for one in trimmed if one.size_bytes is not None]
    totals = {"records": sum(one.records for one in trimmed), "bytes": sum(sizes), **counts}
    log.append(
        {"event": "run", **at, "user": "u", "host": "h", "cluster": {"id": folder.name}, "policy": {"source": "p"}}
        | {"planned": {"partitions": len(rows)}}
    )

    def tell(file: str, count: int, digest: str) -> None:
        log.append({"event": "evidence", **at, "file": file, "rows": count, "sha256": digest})

    recorder = recorder_for(None, folder, {"run": run, "cluster": cluster or folder.name}, tell)
    assert recorder is not None
    recorder.facts(rows, seen)
    by_tp = {one.facts.tp: one for one in rows}
    announced = []
    for one in results:
        row = by_tp[TopicPartition(one.topic, one.partition)]
        floor = None if isinstance(row.facts.floor, Unknown) else row.facts.floor.offset
        announced.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "log_start": known(row.facts.log_start),
                "rule": row.decision.rule,
            }
            | {"min_commit": floor, "target": one.request_offset, "records": one.records, "bytes": one.size_bytes}
        )
    log.append({"event": "batch", **at, "batch": 1, "partitions": announced})
    told = [{"topic": one.topic, "partition": one.partition, "outcome": one.outcome} for one in results]
    log.append({"event": "result", **at, "batch": 1, "partitions": told})
    recorder.results(results)
    log.append({"event": "end", **at, "exit": 0, "totals": totals})


def trimmed(rows: list[Row]) -> list[Result]:
    """What came of rows whose requests were all carried out: the partitions that are decided to trim."""
    found = []
    for one in rows:
        start, target = known(one.facts.log_start) or 0, one.decision.trim_to
        if target is not None:
            sent_ms = one.reads.done + 50
            counts = target - start, one.decision.size_bytes
            place = one.facts.topic.name, one.facts.partition, 1, 1, "trimmed", True
            found.append(Result(*place, target, sent_ms, target, None, target, *counts))
    return found


def several_runs(state_dir: Path) -> None:
    """Three runs of each of two clusters, by any rule, as :func:`left_behind` leaves them."""
    draw = random.Random(3)
    for number in range(6):
        rows, seen = usual(40, topics=20, seed=number % 2)
        rows = [drawn(one, draw, every=n % 3 == 0) for n, one in enumerate(rows)]
        run = f"2027011{5 + number // 2}T080000Z-000{number}"
        left_behind(state_dir / f"cluster-{number % 2}", rows, seen, trimmed(rows), run)


def write(folder: Path) -> None:
    """Write the evidence of a run of 600 partitions."""
    draw = random.Random(1)
    plain, seen = usual(600, topics=600)
    rows = [drawn(one, draw, every=n % 2 == 0) for n, one in enumerate(plain)]
    left_behind(folder / "c", rows, seen, trimmed(rows))


def findings(folder: Path, run: str = RUN) -> list[str]:
    """Return what is wrong in a run's evidence, in the folder of its cluster."""
    return [f"{one.where}: {one.text}" for one in verify_runs(folder.parent, [run])[0].findings]


def wrong(folder: Path) -> int:
    """Return how much of it is wrong."""
    return len(findings(folder / "c"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    sys.stdout.write(f"{wrong(Path(sys.argv[2]))}\n")
