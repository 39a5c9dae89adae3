"""The values of the Python API: a plan with its partitions, a trim's report, the rows of others. All are frozen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, overload
from weakref import WeakKeyDictionary

from kretain.api.errors import translated, usage
from kretain.errors import Exit, worst
from kretain.flows.plans import save_plan
from kretain.flows.trims import code_of, log_lacks
from retention_cli.core.extras import arrow, part
from retention_cli.core.model import Action, Code, Reason, RuleName
from retention_cli.core.printable import printable
from retention_cli.core.units import timestamp
from retention_cli.plan.saved import KEY
from retention_cli.plan.value import (
    CLUSTER,
    SAVED,
    Column,
    Plan as EnginePlan,
    as_json,
    head_as_json,
    plan_text,
    row_as_json,
    schema,
    totals_as_json,
)
from retention_cli.policy.settings import OneOff
from retention_cli.trim.report import OutcomeName, TrimReport, report_as_json, row_as_json as outcome_as_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


__all__ = [
    "Action",
    "InterruptedTrim",
    "Origin",
    "Outcome",
    "OutcomeName",
    "Partition",
    "Plan",
    "Report",
    "Result",
    "Totals",
    "origin_of",
    "plan_value",
    "report_value",
]

_OUTCOMES: Final = (
    Column("topic", "", "text", nullable=False),
    Column("partition", "", "int32", nullable=False),
    Column("outcome", "", "text", nullable=False),
    Column("target", "", "int64"),
    Column("log_start", "", "int64"),
    Column("records", "", "int64", nullable=False),
    Column("bytes", "", "int64"),
    Column("reasons", "", "reasons", nullable=False),
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of rows, by action; records, bytes and unconsumed over the rows that trim (docs/plan.md).

    ``bytes`` is None if the size of one of them is unknown.
    """

    partitions: int
    trim: int
    keep: int
    hold: int
    skip: int
    records: int
    bytes: int | None
    bytes_exact: bool
    unconsumed: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A row of a plan, with the JSON's keys (docs/plan.md). Offsets and counts; None: there is none, or unknown."""

    topic: str
    topic_id: str | None
    partition: int
    leader_epoch: int | None
    action: Action
    log_start: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    min_commit: int | None
    min_commit_by: str | None
    trim_to: int | None
    records: int
    bytes: int | None
    unconsumed: int
    rule: RuleName | None
    limited_by: Code | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a plan value stands for: the engine's plan, the rules it was made with (None: read from ``source``)."""

    made: EnginePlan
    rules: OneOff | None
    source: str | None


_ORIGINS: WeakKeyDictionary[Plan, Origin] = WeakKeyDictionary()
"""By identity: a copy with other values was never planned, and can't be carried out."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Plan:
    """A plan for one cluster: what may be trimmed, partition by partition. Only ``plan`` and ``load_plan`` make one.

    ``created_at`` is ISO 8601 in UTC; ``flags`` are the one-off rules, ``topics`` the topics asked for;
    ``unconsumed_by`` counts, per consumer, the records that it has yet to read and would lose; ``refusals`` are why a
    trim would refuse the plan (G6); ``notes`` are warnings. ``partitions`` are sorted by topic and partition.
    """

    created_at: str
    cluster_id: str
    policy_source: str
    policy_digest: str
    flags: Mapping[str, int | str]
    topics: tuple[str, ...]
    totals: Totals
    unconsumed_by: Mapping[str, int]
    refusals: tuple[Reason, ...]
    notes: tuple[Reason, ...]
    partitions: tuple[Partition, ...]

    def __repr__(self) -> str:
        one = self.totals
        return (
            f"<kretain.Plan of {self.cluster_id}, {self.created_at}: {one.trim} trim, {one.keep} keep, "
            f"{one.hold} hold, {one.skip} skip; {one.records} records>"
        )

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the totals, and the rows that trim or hold."""
        totals = self.totals
        counts = f"{totals.trim:,} trim, {totals.keep:,} keep, {totals.hold:,} hold, {totals.skip:,} skip"
        head = f"<b>{totals.records:,} records would be trimmed</b> in cluster {_html(self.cluster_id)}: {counts}."
        refused = "".join(f"<p><b>trim refuses this plan: {_html(one.text)}</b></p>" for one in self.refusals)
        rows = [one for one in self.partitions if one.action in ("trim", "hold")]
        more = f"<p>and {len(rows) - _MOST:,} more</p>" if len(rows) > _MOST else ""
        return f"{refused}<p>{head}</p>{_html_table(map(_cells, rows[:_MOST])) if rows else ''}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON's own types (``kretain.plan/v1``)."""
        return as_json(origin_of(self).made)

    def to_json(self) -> str:
        """Return the document that ``kretain plan -o json`` prints."""
        return plan_text(origin_of(self).made)

    def save(self, path: str | Path) -> None:
        """Save the plan for :func:`load_plan` and ``kretain trim --plan``: Parquet if it is called ``.parquet``.

        Raises:
            KretainError: the file can't be written, or pyarrow is not installed.
        """
        with translated():
            save_plan(origin_of(self).made, Path(path))

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, with the columns and metadata of a plan's Parquet file.

        Raises:
            KretainError: pyarrow is not installed.
        """
        made = origin_of(self).made
        return _table(
            [{CLUSTER.name: made.cluster_id, **row_as_json(one)} for one in made.decisions],
            (CLUSTER, *SAVED),
            {KEY: json.dumps(head_as_json(made), ensure_ascii=False)},
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame; offsets are pandas' nullable integers, never floats.

        Raises:
            KretainError: pandas or pyarrow is not installed.
        """
        return _frame(self.to_arrow())


def _table(
    rows: list[dict[str, Any]], columns: Sequence[Column], metadata: Mapping[str, str] | None = None
) -> pa.Table:
    with translated():
        return arrow().Table.from_pylist(rows, schema=schema(columns, metadata))


def _frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a DataFrame. Integers stay integers: as floats, offsets above 2⁵³ would be others."""
    with translated():
        frames, types = part("pandas", "pandas"), arrow()
    return table.to_pandas(types_mapper={types.int32(): frames.Int32Dtype(), types.int64(): frames.Int64Dtype()}.get)


def origin_of(plan: object) -> Origin:
    """Return what a plan value stands for.

    Raises:
        KretainError: the plan was neither made nor loaded; it is an edited copy, say.
    """
    found = _ORIGINS.get(plan) if isinstance(plan, Plan) else None
    if found is None:
        raise usage("this is not a plan from plan() or load_plan(): plans cannot be edited; make another one")
    return found


def plan_value(origin: Origin) -> Plan:
    """Return the value that stands for an engine's plan."""
    made = origin.made
    value = Plan(
        timestamp(made.created_at_ms),
        made.cluster_id,
        made.policy_source,
        made.policy_digest,
        MappingProxyType(dict(made.flags)),
        tuple(made.topics),
        Totals(**totals_as_json(made.totals)),
        MappingProxyType(dict(made.unconsumed_by)),
        tuple(made.refusals),
        tuple(made.notes),
        tuple(Partition(**{**row_as_json(one), "reasons": one.reasons}) for one in made.decisions),
    )
    _ORIGINS[value] = origin
    return value


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row of a report, with the JSON's keys: ``target`` is the requested offset, ``log_start`` was read back."""

    topic: str
    partition: int
    outcome: OutcomeName
    target: int | None
    log_start: int | None
    records: int
    bytes: int | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a trim did, a row per partition of its plan: trimmed, unchanged, held, failed, unverified or would-trim.

    ``exit_code`` is the command's: 0, 5 if something failed or could not be verified, 130 if it was interrupted.
    ``records`` and ``bytes`` are what was trimmed (in a dry run: would be). ``notes`` are warnings: a disk that stays
    above its ceiling, an audit log that is not intact, what could not be remembered, what failed after the deletes.
    """

    run: str
    cluster_id: str
    exit_code: int
    records: int
    bytes: int | None
    notes: tuple[Reason, ...]
    partitions: tuple[Outcome, ...]
    document: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<kretain.Report of run {self.run}: {dict(self.document['totals'])}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON's own types (``kretain.trim/v1``)."""
        rows = [
            {
                **{key: getattr(one, key) for key in one.__slots__},
                "reasons": [{"code": reason.code, "text": reason.text} for reason in one.reasons],
            }
            for one in self.partitions
        ]
        return {**self.document, "partitions": rows}

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table: offsets and counts int64, ``reasons`` a list of code and text.

        Raises:
            KretainError: pyarrow is not installed.
        """
        return _table(self.to_dict()["partitions"], _OUTCOMES)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame; see :meth:`Plan.to_pandas`."""
        return _frame(self.to_arrow())


class InterruptedTrim(KeyboardInterrupt):
    """Ctrl-C stopped a trim between requests. ``report`` says what was trimmed until then, and what was left."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"run {report.run} was interrupted")
        self.report = report


def report_value(report: TrimReport, notes: tuple[Reason, ...], *, failed: bool) -> Report:
    """Return a report's value. ``failed``: something failed after the deletes, which ``notes`` say."""
    broken, stopped_by = report.audit_broken, report.stopped_by
    texts = (
        *notes,
        *report.short,
        *([] if broken is None else [Reason("audit", f"the audit log is broken: {broken}")]),
        *(Reason("audit", lack) for lack in log_lacks(report)),
        *(
            []
            if stopped_by is None
            else [Reason("trim", f"the trim was stopped by {type(stopped_by).__name__}: {stopped_by}")]
        ),
    )
    return Report(
        report.run,
        report.cluster_id,
        int(worst(code_of(report, fail_on_hold=False), Exit.PARTIAL if failed else Exit.DONE)),
        report.trimmed.records,
        report.trimmed.size_bytes,
        texts,
        tuple(Outcome(**{**outcome_as_json(row), "reasons": row.reasons}) for row in report.rows),
        MappingProxyType(report_as_json(report)),
    )


_MOST: Final = 40
_HTML_COLUMNS: Final = ("topic", "partition", "action", "trim to", "records", "reasons")


def _cells(one: Partition) -> Sequence[str]:
    return (
        one.topic,
        str(one.partition),
        one.action,
        "" if one.trim_to is None else f"{one.trim_to:,}",
        f"{one.records:,}",
        "; ".join(f"{reason.code}: {reason.text}" for reason in one.reasons),
    )


def _html_table(rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_html(name)}</th>" for name in _HTML_COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html(text: str) -> str:
    return escape(printable(text))


Row = Mapping[str, Any]
"""A row of a result, with the keys of the command's JSON. Read-only."""


class Result(Sequence[Row]):
    """Rows of ``offsets``, ``groups``, ``explain``, ``history`` or ``forecast``, as ``-o json`` prints them.

    ``head`` has the JSON's other keys; ``notes`` are warnings.
    """

    __slots__ = ("_key", "_rows", "head", "notes")

    def __init__(self, head: Row, key: str, rows: Iterable[Row], notes: Iterable[Reason] = ()) -> None:
        self.head: Row = MappingProxyType(dict(head))
        self.notes = tuple(notes)
        self._key = key
        self._rows: tuple[Row, ...] = tuple(MappingProxyType(dict(row)) for row in rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __repr__(self) -> str:
        return f"<kretain.Result {self.head['format']}: {len(self)} {self._key}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the command's JSON as JSON's own types."""
        return json.loads(json.dumps({**self.head, self._key: list(map(dict, self._rows))}))  # type: ignore[no-any-return]

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame; offsets are pandas' nullable integers, never floats.

        Raises:
            KretainError: pandas is not installed.
        """
        with translated():
            frames = part("pandas", "pandas")
        frame = frames.DataFrame(list(map(dict, self._rows)), dtype=object)
        integers = [name for name in frame if {*map(type, frame[name])} - {type(None)} == {int}]
        return frame.astype(dict.fromkeys(integers, "Int64"))
