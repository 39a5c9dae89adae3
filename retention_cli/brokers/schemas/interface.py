"""What each kind of schema gives: a decoder of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Decoder = Callable[[bytes, Sequence[str]], Any]
"""Returns what is at a path in a value, from the value's bytes behind the schema's id: as JSON has it, and moments in
Unix ms. Raises what Python raises if nothing is there, or the bytes are no such value."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry has it: its type, its text, and by name the schemas that it refers to."""

    kind: str
    text: str
    references: Mapping[str, Schema]
