"""A policy's price of storage, and the labels of its topics: as values, and how each is read. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

from retention_cli.policy.shown import shown
from retention_cli.policy.values import Item, right, text_reader, word_reader

_LABEL: Final = re.compile(r"\w[\w ./@-]{0,62}")
_HIGHEST_PRICE: Final = 1e9


def read_price(value: object) -> float:
    """Read a price, a number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _HIGHEST_PRICE:
        raise ValueError(f"{shown(value)} is not a price: give a number such as 0.10")
    return float(value)


def read_labels(value: object) -> dict[str, str]:
    """Read names with their values, all of a few plain characters."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a mapping: write {{team: payments}}")  # noqa: TRY004  (as above)
    wrong: list[Item] = [
        ((), f"{shown(text)} is not a label: use up to 63 letters, digits, spaces, and . _ - / @")
        for pair in value.items()
        for text in pair
        if not isinstance(text, str) or _LABEL.fullmatch(text) is None
    ]
    return right(dict(value), wrong)


IncludedOrExcluded = Annotated[
    str, BeforeValidator(word_reader("included", "excluded")), WithJsonSchema({"enum": ["included", "excluded"]})
]
Price = Annotated[float, BeforeValidator(read_price), WithJsonSchema({"type": "number", "minimum": 0})]
Currency = Annotated[
    str,
    BeforeValidator(text_reader(r"[^\W\d_]{1,8}|[$€£¥₹]", "{} is not a currency: give letters or a sign, such as EUR")),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 8}),
]
Labels = Annotated[
    dict[str, str],
    BeforeValidator(read_labels),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 63}}),
]
