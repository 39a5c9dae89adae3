"""kretain trims Kafka topics from outside the brokers: the command line, and a Python API (docs/python.md).

The engine is ``retention_cli``. The API's names are imported at first use, so that a command does not wait for them;
``__init__.pyi`` has them for type checkers.
"""

import time
from typing import Any

BEGAN = time.monotonic()
"""When this process started (``time.monotonic``): shell completion has one second in total, including start-up."""

_API = {
    "Cluster": "cluster",
    "InterruptedTrim": "values",
    "KretainError": "errors",
    "Outcome": "values",
    "Partition": "values",
    "Plan": "values",
    "RefusedError": "errors",
    "Report": "values",
    "Totals": "values",
    "connect": "cluster",
    "load_plan": "cluster",
}
"""The API's names, and the module of ``kretain.api`` that has each."""


def __getattr__(name: str) -> Any:
    """Import a name of the API."""
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(f"kretain.api.{_API[name]}"), name)
    return found


def __dir__() -> list[str]:
    """Return the names, those of the API included."""
    return sorted({*globals(), *_API})
