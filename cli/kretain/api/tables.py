"""Rows of plans and reports as Arrow tables and pandas DataFrames."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from retention_cli.core.extras import arrow, pandas
from retention_cli.plan.columns import CLUSTER, Column, row_as_json, schema
from retention_cli.plan.parquet import KEY
from retention_cli.plan.value import Plan, head_as_json

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


def plan_table(plan: Plan) -> Any:
    """Return a plan's rows as a ``pyarrow.Table``, as its Parquet file has them.

    Raises:
        MissingPartError: pyarrow is not installed.
    """
    columns = schema(metadata={KEY: json.dumps(head_as_json(plan), ensure_ascii=False)})
    rows = [{CLUSTER.name: plan.cluster_id, **row_as_json(one)} for one in plan.decisions]
    return arrow().Table.from_pylist(rows, schema=columns)


def report_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a report's rows as a ``pyarrow.Table``.

    Raises:
        MissingPartError: pyarrow is not installed.
    """
    return arrow().Table.from_pylist(list(rows), schema=schema(_OUTCOMES))


def frame(table: Any) -> Any:
    """Return a table as a DataFrame. Integers stay integers: as floats, offsets above 2⁵³ would be others.

    Raises:
        MissingPartError: pandas is not installed.
    """
    pd, pa = pandas(), arrow()
    return table.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get)
