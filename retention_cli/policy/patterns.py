"""Names, globs and regular expressions, matched in a time that grows with the name alone."""

from __future__ import annotations

import functools
import re
from fnmatch import translate
from typing import Any, Protocol

from retention_cli.policy.shown import short, shown

REGEX = "re:"
"""How a regular expression begins."""


class PatternError(ValueError):
    """A pattern that is not a regular expression; the text names it, bounded, and says why."""


class Pattern(Protocol):
    """A compiled glob or regular expression."""

    def fullmatch(self, text: str) -> Any:
        """Return something where the whole text matches, None where it does not."""
        ...


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> Pattern:
    """Return a glob, or ``re:`` and a regular expression, compiled.

    A regular expression is RE2's, as Kafka's own group protocol has it (KIP-848): whatever the pattern and the name
    (anybody may name a group), a match takes linear time. Look-arounds and back-references are not in it.

    Raises:
        PatternError: it is not a regular expression that RE2 takes.
    """
    if not pattern.startswith(REGEX):
        return re.compile(translate(pattern))
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        found: Pattern = re2.compile(pattern.removeprefix(REGEX), options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if isinstance(error, re2.error) and error.args else str(error)
        why = short(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))
        raise PatternError(f"{shown(pattern)} is not a regular expression (RE2): {why}") from None
    return found
