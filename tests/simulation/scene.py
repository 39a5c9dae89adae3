"""The scene of every run: topics, groups, policies, operators."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from retention_cli.memory import event_scan
from retention_cli.plan.value import Plan
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.trim.report import TrimReport
from tests.simulation.clients import LateDelete, Process, SimClock
from tests.simulation.kafka import BEGAN_MS, HOUR
from tests.simulation.truth import MemoryTruth, Rules

Step = tuple[Any, ...]
"""The name of what happens, and small whole numbers."""

MINUTE: Final = 60_000
RULES: Final[dict[str, Rules]] = {
    "R1": Rules(consumed_h=1),
    "R1 R4": Rules(consumed_h=1, forced_h=24),
    "R1 G3": Rules(consumed_h=1, wallclock_h=2),
    "R2": Rules(event_h=24),
    "R2 header": Rules(event_h=24, header=True, unconsumed="trim"),
    "R2 header G2": Rules(event_h=24, header=True),
    "R2 json": Rules(event_h=24, header=True, json=True, unconsumed="trim"),
    "R2 avro": Rules(event_h=24, header=True, avro=True, unconsumed="trim"),
    "R3": Rules(minimum_ms=BEGAN_MS - 24 * HOUR, unconsumed="trim"),
    "R3 live": Rules(live=True, unconsumed="trim"),
    "R4": Rules(forced_h=12),
    "R4 G3": Rules(forced_h=12, wallclock_h=3),
    "R1 R2 R4 G3": Rules(consumed_h=1, event_h=24, forced_h=48, wallclock_h=2),
    "R1 F7": Rules(consumed_h=1, outside=True),
    "R1 latest": Rules(consumed_h=1, latest=("g1",)),
    "R1 stale": Rules(consumed_h=1, stale=("g0", "g1")),
    "R3 G2 F7": Rules(minimum_ms=BEGAN_MS - 24 * HOUR, outside=True),
    "R1 start": Rules(consumed_h=1, start={"g1": 24, "g2": 1}),
    "R1 hidden": Rules(consumed_h=1, require=("g0",), hidden=True),
    "R1 tenant": Rules(consumed_h=1, require=("g0",), hidden=True, scope="g"),
    "R1 watched": Rules(consumed_h=1, watch_h=2),
    "R3 G2 tenant": Rules(minimum_ms=BEGAN_MS - 24 * HOUR, require=("g0",), scope="g"),
}
MANAGED: Final = "a"
OTHER: Final = "b"
GROUPS: Final = ("g0", "g1", "g2")
OUTSIDER: Final = "others"
"""The last group's name where a user may only see those of a prefix."""


def group_name(rules: str, number: int) -> str:
    """Return the key of a consumer: of a group its id, of one outside Kafka's groups what kretain calls it (F7)."""
    name = GROUPS[number % len(GROUPS)]
    if name != GROUPS[-1]:
        return name
    return f"\x01file:{name}" if RULES[rules].outside else name if RULES[rules].scope is None else OUTSIDER


AGES_MS: Final = (0, 30 * MINUTE, 3 * HOUR, 48 * HOUR, 100 * HOUR, -2 * HOUR)
EDGES_MS: Final = {9: 690 * MINUTE, 10: 1410 * MINUTE}
"""Half an hour less than R4 and R2 ask for: who is an hour early takes them."""
TIMES_MS: Final = (MINUTE, 40 * MINUTE, 3 * HOUR, 30 * HOUR, 10 * 24 * HOUR)
BLOCK_RECORDS: Final = 3
CLOCKS_MS: Final = (0, 0, -2 * HOUR, 2 * HOUR, 72 * HOUR, -72 * HOUR, 30_000)
MEMORIES: Final = ("each", "one", "cluster")
"""Each operator has a state directory, both have one, or each a cache of what all share in a topic."""
STATE_ROOT: Final = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


# A scan's blocks are as small as our logs are: with the true size a block's border would never be met.
_create: Any = event_scan.EventScan.__init__
_create.__defaults__ = tuple(BLOCK_RECORDS if n == event_scan.FIRST_BLOCK_RECORDS else n for n in _create.__defaults__)


@functools.cache
def policy(rules: Rules, topics: tuple[str, ...], hold: bool, state: str) -> Policy:
    entry = rules.entry() | ({"hold": "a case"} if hold else {})
    told = {
        "version": 1,
        "state": state,
        "groups": rules.groups(),
        "floors": [{"file": "/simulated", "name": GROUPS[-1]}] * rules.outside,
        "topics": [{"match": name, **entry} for name in topics],
    }
    return parse_policy(json.dumps(told), "policy.yaml", "sha256:simulated")


class Simulated(ExitStack):
    """One run of a simulation: a folder that is deleted at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kretain-sim-", dir=STATE_ROOT))
        self.callback(shutil.rmtree, self.root, ignore_errors=True)

    def apply(self, *steps: Step) -> None:
        for name, *numbers in steps:
            getattr(self, f"do_{name}")(*numbers)


@dataclass
class Operator:
    """Somebody with a kretain, a state directory and a clock."""

    name: str
    folder: Path
    clock: SimClock
    topics: tuple[str, ...]
    memory: MemoryTruth = field(default_factory=MemoryTruth)
    copy: Path | None = None
    copied: MemoryTruth | None = None
    process: Process = field(default_factory=lambda: Process("none yet", lambda: None, alive=False))
    source: str = ""
    saved: Plan | None = None
    late: list[LateDelete] = field(default_factory=list)
    reports: list[TrimReport] = field(default_factory=list)


class SenselessError(Exception):
    """A step makes no sense just now: it does nothing."""


class ViolationError(AssertionError):
    """The simulation found a delete, a report or a stand-still that docs/rules.md does not allow."""
