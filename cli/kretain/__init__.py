"""kretain trims Kafka topics from outside the brokers: the command line, and a Python API (docs/python.md).

The engine is ``retention_cli``. The API's names are imported at first use, so that a command does not wait for them;
``__init__.pyi`` has them for type checkers.
"""

import time
from typing import Any

from retention_cli import __version__ as __version__

BEGAN = time.monotonic()
"""When this process started (``time.monotonic``): shell completion has one second in total, including start-up."""

_API = {
    "Action": "values",
    "Cluster": "cluster",
    "ErrorCode": "errors",
    "InterruptedTrim": "values",
    "LockedError": "errors",
    "KretainError": "errors",
    "Outcome": "values",
    "OutcomeName": "values",
    "Partition": "values",
    "Plan": "values",
    "PolicyError": "errors",
    "RefusedError": "errors",
    "Report": "values",
    "RequestError": "errors",
    "Result": "values",
    "SettingsError": "errors",
    "StateError": "errors",
    "Totals": "values",
    "UnauthorizedError": "errors",
    "UnreachableError": "errors",
    "UsageError": "errors",
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
    """Return the names of the API."""
    return sorted((*_API, "__version__"))
