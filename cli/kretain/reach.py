"""How this command reaches its cluster, so that the command lines in what it prints are complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from retention_cli.core.commands import Reach

_known: list[Reach] = []
"""Empty, or one. A command for several clusters prints HOST:PORT."""


def reaches(bootstrap: str, command_config: str | None, given: Iterable[tuple[str, str]], *, secured: bool) -> None:
    """Note how the cluster is reached: by the options ``given``, and for Kafka's tools by a client file if need be."""
    kafka = ["--bootstrap-server", bootstrap]
    if command_config is not None or secured:
        kafka += ["--command-config", command_config or "FILE"]
    _known[:] = [Reach(tuple(kafka), tuple(word for option, value in given for word in (option, value)))]


def complete(text: str) -> str:
    """Return a text with its command lines completed."""
    return _known[0].complete(text) if _known else text


def complete_json(text: str) -> str:
    """Return JSON with the command lines in its texts completed."""
    return _known[0].complete(text, lambda values: json.dumps(values, ensure_ascii=False)[1:-1]) if _known else text


def completed(value: Any) -> Any:
    """Return a JSON value with the command lines in its texts completed."""
    if not _known:
        return value
    if isinstance(value, str):
        return complete(value)
    if isinstance(value, Mapping):
        return {key: completed(one) for key, one in value.items()}
    return [completed(one) for one in value] if isinstance(value, (list, tuple)) else value
