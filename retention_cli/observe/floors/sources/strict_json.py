"""JSON that consumers' positions are read from: nothing twice, no NaN, and errors in our words. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from retention_cli.observe.floors.sources.interface import SourceError


def parse(text: str, first_line: int = 1) -> Any:
    """Return what a JSON text holds; ``first_line`` is the text's own, for errors.

    Raises:
        SourceError: it is not JSON, is nested too deeply, or an object has a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise SourceError(f"line {error.lineno + first_line - 1}: it is not JSON, or was cut short") from None
    except (ValueError, RecursionError) as error:
        raise SourceError(str(error) if isinstance(error, _TwiceError) else "it is not JSON that can be read") from None


class _TwiceError(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError("it has a key twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(name)
