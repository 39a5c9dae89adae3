"""Pickle values for tasks, and between tasks: no schema lists their fields, so none can become outdated.

They are written by the client or a task, and read only by tasks. The client, which can delete, unpickles nothing that
another process has written.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from types import MappingProxyType
from typing import Any


def _unchanging(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _Pickler(pickle.Pickler):
    """Facts contain read-only mappings, which pickle can't write by itself."""

    dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda one: (_unchanging, (dict(one),))}


def to_bytes(value: Any) -> bytes:
    """Return a value as bytes, for a task."""
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def from_bytes(raw: bytes) -> Any:
    """Return the value in bytes of :func:`to_bytes`. Only for use in a task."""
    return pickle.loads(raw)  # noqa: S301  (written by our client or task, and sent by Spark like our code)
