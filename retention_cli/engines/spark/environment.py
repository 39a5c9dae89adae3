"""Check what executors need before any work is sent: an error names the missing part and its machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from retention_cli.engines.spark.session import SparkError, as_spark_error, last_words

NEEDED: Final = {
    "confluent_kafka": "confluent-kafka",
    "kafka": "kafka-python",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "cryptography": "cryptography",
    "javaproperties": "javaproperties",
    "pydantic": "pydantic",
    "re2": "google-re2",
    "yaml": "PyYAML",
}
"""The modules that executors import, and their distributions. Some are native, and can't be imported from a zip."""

_ENDED: Final = "SparkContext was shut down"
"""In the error if the application was ended from outside: by YARN's administrator or by resource preemption."""
_FAILS: Final = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)
"""The errors that an import raises if the part is missing, broken, or of another version."""


def probe(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield one row with the parts that are missing on the executor where this runs.

    All input is read: Spark ends a Python worker whose task leaves some, and the next one would import everything anew.
    """
    import pyarrow as pa

    deque(batches, 0)
    missing = []
    for module, distribution in NEEDED.items():
        try:
            importlib.import_module(module)
        except _FAILS as error:
            missing.append(f"{distribution} ({type(error).__name__}: {error})")
    try:
        importlib.import_module("retention_cli.observe.cluster")
    except _FAILS as error:
        missing.append(f"kretain's engine ({type(error).__name__}: {error})")
    columns = {"host": [socket.gethostname()], "python": [platform.python_version()], "missing": ["; ".join(missing)]}
    yield pa.RecordBatch.from_pydict(columns)


def check_executors(session: Any, tasks: int) -> None:
    """Check that executors have what they need.

    Raises:
        SparkError: an executor lacks a part; the text names it, and how to install it.
    """
    frame = session.range(0, tasks, 1, tasks).mapInArrow(probe, "host string, python string, missing string")
    try:
        rows = frame.collect()
    except Exception as error:  # noqa: BLE001  (not even the probe runs)
        said = last_words(error)
        if _ENDED in said and (ended := as_spark_error(error)) is not None:
            raise ended from None
        raise SparkError(
            f"Spark's executors can't run Python as kretain needs it: {said} (is it the Python that you "
            f"mean? PYSPARK_PYTHON names it; docs/spark.md says how to ship an environment)"
        ) from None
    for row in rows:
        if row["missing"]:
            raise SparkError(
                f"executor {row['host']} (Python {row['python']}) lacks {row['missing']}: install them there, or ship "
                f"an environment (docs/spark.md)"
            )
