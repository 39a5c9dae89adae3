"""How many partitions ``kretain verify`` checks a second of a core, by the rule that decided them.

Of each rule a small and a large run are verified, each in a process of its own. The rate is that of the rows that the
large one has more: imports and a run's own lines in the audit log cost the same in both.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retention_cli.core.model import ANCIENT_MS, EventMax, LookUp, Reason, Sample, Tail, Usage, Watermark
from retention_cli.evidence.checks import decided
from retention_cli.evidence.value import DiskPart, RecordedDecision, Row
from retention_cli.policy.settings import Settings
from tests.support.evidence import RUN, left_behind, trimmed, usual
from tests.support.facts import HOUR, NOW

if TYPE_CHECKING:
    from bench.harness import Timed

SMALL, LARGE, RATE = 5_000, 50_000, 20_000
_BARE = Settings(named_in_full=True)


def by(rule: str, row: Row, at: int) -> Row:
    """Return a plain row as this rule trims it, to an offset: only the facts that the rule reads are there."""
    was = row.facts
    front = {ANCIENT_MS: was.lookups[ANCIENT_MS]}
    day, found = NOW - 24 * HOUR, LookUp(at, None, NOW - 24 * HOUR + 5)
    bare = was._replace(lookups=front)
    match rule:
        case "R2":
            facts = bare._replace(newest=EventMax(NOW - HOUR, at, True), data_lookups={day: found})
            return row._replace(settings=replace(_BARE, event_time_ms=23 * HOUR), facts=facts)
        case "R3":
            facts = bare._replace(data_lookups={day: found})
            return row._replace(settings=replace(_BARE, min_timestamp_ms=day), facts=facts)
        case "R4":
            settings = replace(_BARE, forced_age_ms=24 * HOUR, unconsumed="trim")
            return row._replace(settings=settings, facts=was._replace(lookups=front | {day: found}))
        case "R5":
            facts = was._replace(lookups={}, tails={"retention.bytes": Tail(at, False)})
            return row._replace(settings=replace(_BARE, max_bytes=2**30), facts=facts)
        case "R6":
            low: Any = was.floor
            return row._replace(disks=DiskPart((low.offset - 1, Reason("R6", "disk b1:/d is at 91 %")), None))
        case "R7":
            half = LookUp(max(at, was.lookups[NOW - HOUR].offset), None, NOW - HOUR // 2 + 5)  # type: ignore[union-attr]
            usage = Usage("b1:/d", 91.5, Watermark(90.0, 0.5, 0))
            return row._replace(facts=was._replace(usage=usage, lookups={**was.lookups, NOW - HOUR // 2: half}))
        case "G3":
            samples = [Sample(NOW - hours * HOUR, at) for hours in (3, 2, 1)]
            settings = replace(row.settings, min_wallclock_ms=HOUR)
            return row._replace(settings=settings, facts=was._replace(samples=samples))
    return row


def write(folder: Path, rule: str, count: int) -> None:
    """Write the evidence of a run that trimmed so many partitions, and its audit log."""
    draw, rows, chosen = random.Random(1), list[Row](), dict[str, Settings]()
    plain, seen = usual(count, topics=count // 50)
    for one in plain:
        start: Any = one.facts.log_start
        end: Any = one.facts.high_watermark
        made = by(rule, one, draw.randrange(start + 1, end))
        made = made._replace(settings=chosen.setdefault(one.facts.topic.name, made.settings))
        again = decided(made)
        planned = made.planned._replace(trim_to=again.trim_to or 0, unconsumed=again.unconsumed)
        rows.append(made._replace(decision=RecordedDecision.of(again), planned=planned))
    left_behind(folder / "c", rows, seen, trimmed(rows))


def verify_rates(say: Callable[..., None], run: Callable[[list[str]], Timed], scratch: Path, rounds: int = 3) -> None:
    """Print the rate of each rule."""
    program = str(Path(sys.executable).with_name("kretain"))
    for rule in ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "G3"):
        least = []
        for count in (SMALL, LARGE):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                write(Path(folder), rule, count)
                command = [program, "verify", RUN, "--state-dir", folder]
                least.append(min(run(command).cpu_seconds for _ in range(rounds)))
        rate = (LARGE - SMALL) / (least[1] - least[0])
        say(f"verify by {rule}, rows/s a core", rate, f">= {RATE}", good=rate >= RATE)
