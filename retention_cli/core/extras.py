"""Optional libraries, imported where they are used: kretain works without them until a feature needs them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from retention_cli.core.install import how_to_add


class MissingPartError(Exception):
    """An optional part of kretain is not installed; the text says how to get it."""


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow, or one of its modules (``pyarrow.parquet``, ``pyarrow.fs``).

    Raises:
        MissingPartError: it is not installed.
    """
    return _part(module, "Parquet needs pyarrow", "parquet")


def pandas() -> Any:
    """Return pandas.

    Raises:
        MissingPartError: it is not installed.
    """
    return _part("pandas", "to_pandas needs pandas", "pandas")


def botocore(module: str = "botocore.session") -> Any:
    """Return a module of botocore.

    Raises:
        MissingPartError: it is not installed.
    """
    return _part(module, "AWS credentials need botocore", "aws")


def plots(module: str = "matplotlib.figure") -> Any:
    """Return a module of matplotlib.

    Raises:
        MissingPartError: it is not installed.
    """
    return _part(module, "plots need matplotlib", "report")


def prometheus() -> Any:
    """Return prometheus_client.

    Raises:
        MissingPartError: it is not installed.
    """
    return _part("prometheus_client", "metrics need prometheus_client", "metrics", ", or --listen off")


def avro(module: str) -> Any:
    """Return fastavro or protobuf, or a module of theirs.

    Raises:
        MissingPartError: it is not installed.
    """
    return _part(module, "event times in Avro and Protobuf need fastavro and protobuf", "avro")


def require_spark() -> None:
    """Check that all that ``--spark`` needs is there, without importing it.

    Raises:
        MissingPartError: something is not installed.
    """
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPartError(f"--spark needs PySpark: {how_to_add('spark')} (without {', '.join(missing)})")


def _part(module: str, need: str, extra: str, otherwise: str = "") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(f"{need}: {how_to_add(extra)}{otherwise} ({error})") from None
