"""Names that terminals and HTML would act on, and what of an output does not print."""

from __future__ import annotations

from tests.support.world import Cli

HOSTILE = "evil\x1b[2J\x1b[31m\r\nkretain: 0 records\x07\x9b1m\u202egpj.exe\u200b\u2028"


def odd(said: Cli) -> set[str]:
    """Return what does not print of an output; its line ends aside."""
    return {one for one in said.out + said.err if one != "\n" and not one.isprintable()}
