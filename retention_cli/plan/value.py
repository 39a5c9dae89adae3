"""The plan: decisions with their totals, as JSON and back (docs/plan.md, The plan). Pure.

A plan is a list of requests. A trim decides again, and uses the smaller of the two offsets: a plan can only narrow it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from retention_cli import __version__
from retention_cli.core.model import Decision, Reason
from retention_cli.core.signing import Signed
from retention_cli.core.units import timestamp
from retention_cli.plan.rows import having, held_back_by, row_as_json
from retention_cli.policy.settings import TRIGGER_FLAGS

if TYPE_CHECKING:  # only plans that speak of disks need it
    from retention_cli.disks.disk import DiskOutcome, Space

FORMAT: Final = "kretain.plan/v1"
FLEET_FORMAT: Final = "kretain.fleet-plan/v1"
NO_FILE: Final = "flags"
"""A plan's ``policy_source`` if there is no policy file."""
UNCHECKED: Final = "unchecked"
Clock = Literal["checked", "unchecked"]
"""Whether this machine's clock was compared with the brokers'. Only a trim does that, never a plan (G8)."""
Rules = Literal["file", "one-off"]
"""The triggers that a plan uses: the policy file's, or only the flags'."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over all rows; records, bytes and unconsumed over the rows that trim.

    ``size_bytes`` is None if the size of any trimmed row is unknown; ``size_exact``: all of those sizes are exact.
    """

    partitions: int
    trim: int
    keep: int
    hold: int
    skip: int
    records: int
    size_bytes: int | None
    unconsumed: int
    size_exact: bool = False

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Totals:
        """Count the decisions."""
        counts = {"trim": 0, "keep": 0, "hold": 0, "skip": 0}
        records = unconsumed = 0
        size: int | None = 0
        exact = True
        for one in decisions:
            counts[one.action] += 1
            if one.action == "trim":
                exact &= one.size_exact
                records += one.records
                unconsumed += one.unconsumed
                size = None if size is None or one.size_bytes is None else size + one.size_bytes
        told = exact and counts["trim"] > 0
        return cls(
            sum(counts.values()),
            **counts,
            records=records,
            size_bytes=size,
            unconsumed=unconsumed,
            size_exact=told,
        )

    def __add__(self, other: Totals) -> Totals:
        mine, theirs = self.size_bytes, other.size_bytes
        return Totals(
            self.partitions + other.partitions,
            self.trim + other.trim,
            self.keep + other.keep,
            self.hold + other.hold,
            self.skip + other.skip,
            self.records + other.records,
            None if mine is None or theirs is None else mine + theirs,
            self.unconsumed + other.unconsumed,
            all(one.size_exact for one in (self, other) if one.trim) and self.trim + other.trim > 0,
        )


class TopicRows(NamedTuple):
    """What a topic's decisions come to, and what keeps how many from being trimmed further (:func:`held_back_by`)."""

    topic: str
    totals: Totals
    held: Counter[str]


def by_topic(decisions: Iterable[Decision]) -> Iterator[TopicRows]:
    """Yield what each topic's decisions come to; a topic's decisions are together."""
    for topic, rows in groupby(decisions, key=lambda one: one.topic):
        some = list(rows)
        yield TopicRows(topic, Totals.of(some), Counter(by for one in some for by in held_back_by(one)))


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for one cluster, made at one time, sorted by topic and partition.

    ``flags`` are the one-off rules as given, ``topics`` the TOPIC arguments. ``unconsumed_by`` counts, per
    consumer, the records that would be trimmed before it has read them. ``refusals`` are why a trim would refuse the
    plan (G6), ``notes`` are other warnings. ``memory_since_ms`` is when the cluster's ledger was started (Unix ms),
    None if there was none yet. ``disks`` are R6's results if there are disk rules; ``space`` is how much brokers
    free after the plan, and when. ``counted`` are the totals, if the decisions were already counted. ``requester`` has
    signed the plan as his. ``saved`` is what its file says, None if it was made in this run.
    """

    created_at_ms: int
    cluster_id: str
    bootstrap: str
    policy_source: str
    policy_digest: str
    flags: Mapping[str, int | str]
    topics: Sequence[str]
    decisions: Sequence[Decision]
    unconsumed_by: Mapping[str, int] = field(default_factory=dict)
    refusals: Sequence[Reason] = ()
    notes: Sequence[Reason] = ()
    memory_since_ms: int | None = None
    memory: str = "local"
    disks: Sequence[DiskOutcome] = ()
    space: Space | None = None
    counted: Totals | None = None
    requester: Signed | None = None
    saved: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def totals(self) -> Totals:
        """Counts over all decisions."""
        return Totals.of(self.decisions) if self.counted is None else self.counted

    @property
    def rules(self) -> Rules:
        """The triggers that the plan uses. A flag for a trigger turns the file's triggers off (docs/policy.md)."""
        return "one-off" if any(flag in self.flags for flag in TRIGGER_FLAGS) else "file"


def totals_as_json(totals: Totals) -> dict[str, Any]:
    """Return the sums over decisions as JSON's own types."""
    return {
        "partitions": totals.partitions,
        "trim": totals.trim,
        "keep": totals.keep,
        "hold": totals.hold,
        "skip": totals.skip,
        "records": totals.records,
        "bytes": totals.size_bytes,
        "bytes_exact": totals.size_exact,
        "unconsumed": totals.unconsumed,
    }


def head_as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan's JSON without its rows."""
    totals = plan.totals
    return {
        "format": FORMAT,
        "kretain": __version__,
        "created_at": timestamp(plan.created_at_ms),
        "cluster": {"id": plan.cluster_id, "bootstrap": plan.bootstrap},
        "policy": {
            "source": plan.policy_source,
            "digest": plan.policy_digest,
            "rules": plan.rules,
            "flags": dict(plan.flags),
            "topics": list(plan.topics),
        },
        **({} if plan.requester is None else {"requester": asdict(plan.requester)}),
        "clock": UNCHECKED,
        "memory": {
            "state": plan.memory,
            "since": None if plan.memory_since_ms is None else timestamp(plan.memory_since_ms),
        },
        "has_changes": totals.trim > 0,
        "totals": totals_as_json(totals),
        **_disks_as_json(plan),
        "unconsumed_by": dict(sorted(plan.unconsumed_by.items())),
        "refusals": [{"code": reason.code, "text": reason.text} for reason in plan.refusals],
        "notes": [{"code": reason.code, "text": reason.text} for reason in plan.notes],
    }


def _disks_as_json(plan: Plan) -> dict[str, Any]:
    if not plan.disks and plan.space is None:
        return {"disks": [], "space": None}
    from retention_cli.disks.disk import outcome_as_json

    return {
        "disks": [outcome_as_json(one) for one in plan.disks],
        "space": None if plan.space is None else asdict(plan.space),
    }


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the whole plan as JSON's own types."""
    return {**head_as_json(plan), "partitions": list(map(row_as_json, plan.decisions))}


def json_lines(head: Mapping[str, Any], key: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text of a JSON object whose ``key`` is a list, with one row per line: fast, and easy to diff."""
    text = json.dumps(head, ensure_ascii=False, indent=1)
    yield text[: text.rindex("\n")] + f',\n "{key}": ['
    first = True
    for row in rows:
        yield ("\n  " if first else ",\n  ") + json.dumps(row, ensure_ascii=False)
        first = False
    yield "]\n}\n" if first else "\n ]\n}\n"


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the plan's JSON in pieces, one partition per line: what ``--out`` saves and ``-o json`` prints."""
    return json_lines(head_as_json(plan), "partitions", map(row_as_json, plan.decisions))


def plan_text(plan: Plan) -> str:
    """Return the plan's JSON as text."""
    return "".join(plan_lines(plan))


def delete_records_json(plan: Plan) -> dict[str, Any]:
    """Return the content of an ``--offset-json-file`` for kafka-delete-records.sh."""
    rows = [
        {"topic": one.topic, "partition": one.partition, "offset": one.trim_to}
        for one in having(plan.decisions, "trim")
    ]
    return {"partitions": rows, "version": 1}
