"""Optional libraries, imported where they are used: kretain works without them until a feature needs them."""

from __future__ import annotations

import importlib
from typing import Any


class MissingPartError(Exception):
    """An optional part of kretain is not installed; the text says how to get it."""


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow, or one of its modules (``pyarrow.parquet``, ``pyarrow.fs``).

    Raises:
        MissingPartError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(f"Parquet needs pyarrow: pip install 'kretain[parquet]' ({error})") from None


def numpy() -> Any:
    """Return numpy.

    Raises:
        MissingPartError: it is not installed.
    """
    try:
        return importlib.import_module("numpy")
    except ImportError as error:
        raise MissingPartError(f"records by time need numpy: pip install 'kretain[parquet]' ({error})") from None


def plots(module: str = "matplotlib.figure") -> Any:
    """Return a module of matplotlib.

    Raises:
        MissingPartError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(f"plots need matplotlib: pip install 'kretain[report]' ({error})") from None
