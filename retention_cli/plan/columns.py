"""The columns of a plan's rows, defined once for JSON, CSV and Parquet. Pure.

A new column needs an entry here, a field of :class:`~retention_cli.core.model.Decision`, and a line in docs/plan.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from retention_cli.core.extras import arrow
from retention_cli.core.model import Decision, Reason

Kind = Literal["text", "int32", "int64", "bool", "reasons"]


class Column(NamedTuple):
    """One column: its name in plans, the decision's field, its kind, and whether it may be null.

    A column that is not ``saved`` is only passed between kretain's own processes, and in no saved or printed plan.
    """

    name: str
    field: str
    kind: Kind
    nullable: bool = True
    saved: bool = True


COLUMNS: Final = (
    Column("topic", "topic", "text", nullable=False),
    Column("topic_id", "topic_id", "text"),
    Column("partition", "partition", "int32", nullable=False),
    Column("leader_epoch", "leader_epoch", "int32"),
    Column("action", "action", "text", nullable=False),
    Column("log_start", "log_start", "int64"),
    Column("high_watermark", "high_watermark", "int64"),
    Column("last_stable_offset", "last_stable_offset", "int64"),
    Column("min_commit", "min_commit", "int64"),
    Column("min_commit_by", "min_commit_by", "text"),
    Column("trim_to", "trim_to", "int64"),
    Column("records", "records", "int64", nullable=False),
    Column("bytes", "size_bytes", "int64"),
    Column("unconsumed", "unconsumed", "int64", nullable=False),
    Column("rule", "rule", "text"),
    Column("limited_by", "limited_by", "text"),
    Column("reasons", "reasons", "reasons", nullable=False),
    Column("bytes_exact", "size_exact", "bool", saved=False),
)
"""The columns, in the order in which they are written."""

SAVED: Final = tuple(one for one in COLUMNS if one.saved)
NAMES: Final = tuple(one.name for one in SAVED)
"""The keys of a row in JSON, and the columns of CSV and Parquet."""
CLUSTER: Final = Column("cluster", "", "text", nullable=False)
"""The first column of a table that may contain the plans of a fleet."""

_PLAIN: Final = tuple(one for one in SAVED if one.kind != "reasons")
_plain_values: Final = attrgetter(*(one.field for one in _PLAIN))
_plain_names: Final = tuple(one.name for one in _PLAIN)


def row_as_json(decision: Decision) -> dict[str, Any]:
    """Return a decision as a row of the plan's JSON."""
    row = dict(zip(_plain_names, _plain_values(decision), strict=True))
    row["reasons"] = [{"code": reason.code, "text": reason.text} for reason in decision.reasons]
    return row


def decision_of(row: Mapping[str, Any]) -> Decision:
    """Return the decision in a row. Columns that are not saved may be missing."""
    values = {one.field: row[one.name] for one in COLUMNS if one.name in row or one.saved}
    values["reasons"] = tuple(Reason(one["code"], one["text"]) for one in row["reasons"] or ())
    values["size_exact"] = bool(values.get("size_exact"))
    return Decision(**values)


def schema(columns: Sequence[Column] = (CLUSTER, *SAVED), metadata: Mapping[str, str] | None = None) -> Any:
    """Return the ``pyarrow.Schema`` of the columns: offsets and counts int64, partitions and epochs int32.

    Raises:
        MissingPartError: pyarrow is not installed.
    """
    pa = arrow()
    reason = pa.struct([pa.field("code", pa.string(), nullable=False), pa.field("text", pa.string(), nullable=False)])
    types = {
        "text": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
        "reasons": pa.list_(reason),
    }
    return pa.schema(
        [pa.field(one.name, types[one.kind], nullable=one.nullable) for one in columns], metadata=dict(metadata or {})
    )
