"""What a command shows, as a value: a sequence of rows with the JSON's keys (docs/python.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from kretain.api.errors import translated
from retention_cli.core.extras import part
from retention_cli.core.model import Reason

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
"""A row of a result, with the keys of the command's JSON. Read-only."""


class Result(Sequence[Row]):
    """Rows of ``offsets``, ``groups``, ``explain``, ``history`` or ``forecast``, as ``-o json`` prints them.

    ``head`` is what the JSON has beside the rows; ``notes`` are warnings.
    """

    __slots__ = ("_key", "_rows", "head", "notes")

    def __init__(self, head: Row, key: str, rows: Iterable[Row], notes: Iterable[Reason] = ()) -> None:
        self.head: Row = MappingProxyType(dict(head))
        self.notes = tuple(notes)
        self._key = key
        self._rows: tuple[Row, ...] = tuple(MappingProxyType(dict(row)) for row in rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __repr__(self) -> str:
        return f"<kretain.Result {self.head['format']}: {len(self)} {self._key}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the command's JSON as JSON's own types."""
        return json.loads(json.dumps({**self.head, self._key: list(map(dict, self._rows))}))  # type: ignore[no-any-return]

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame; offsets are pandas' nullable integers, never floats.

        Raises:
            KretainError: pandas is not installed.
        """
        with translated():
            frames = part("pandas", "pandas")
        frame = frames.DataFrame(list(map(dict, self._rows)), dtype=object)
        whole = [name for name in frame if {*map(type, frame[name])} - {type(None)} == {int}]
        return frame.astype(dict.fromkeys(whole, "Int64"))
