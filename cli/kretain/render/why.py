"""What a reason code means."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from kretain.config import nearest
from kretain.errors import UsageError
from kretain.render.output import BLANK, Column, Line, Part, Table, show
from kretain.texts import Explanation, explanations
from retention_cli.core.model import Code


def print_codes(code: str | None, output: str) -> None:
    """Print the explanation of a code, in any case of letters, or the list of all codes.

    Raises:
        UsageError: there is no such code.
    """
    known = explanations()
    by_name = {name.lower(): one for name, one in known.items()}
    if code is not None and code.lower() not in by_name:
        if code.upper() in Code.__members__:
            raise UsageError(f"{code.upper()} is a rule, not a reason: docs/rules.md explains it")
        raise UsageError(f"no reason code {code!r}; {nearest(code, known, 'codes are')}")
    chosen = list(known.values()) if code is None else [by_name[code.lower()]]
    show(
        output,
        {"format": "kretain.why/v1"},
        "codes",
        (one._asdict() for one in chosen),
        lambda: (
            _explained(chosen[0])
            if code is not None
            else [
                Table(
                    (Column("code", unbroken=True), Column("meaning")),
                    [(one.code, _plain(one.title)) for one in chosen],
                ),
                BLANK,
                "kretain why CODE says what to do.",
            ]
        ),
        Explanation._fields,
    )


def _explained(one: Explanation) -> Iterator[Part]:
    yield Line(f"{one.code}: {_plain(one.title)}", "bold")
    for before, block in itertools.pairwise(["", *re.split(r"\n\n|\n(?=- )", one.text)]):
        if not (before.startswith("- ") and block.startswith("- ")):
            yield BLANK
        if block.startswith("    "):
            yield from (Line(line.strip(), indent=4, kind="verbatim") for line in block.splitlines())
        else:
            yield Line(_plain(" ".join(block.split())), indent=2 if block.startswith(("- ", "  ")) else 0)


def _plain(markdown: str) -> str:
    return markdown.replace("`", "")
