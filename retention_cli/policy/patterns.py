"""Match names with globs and regular expressions, in a time that grows only with the name."""

from __future__ import annotations

import functools
import re
from fnmatch import translate

from retention_cli.policy.shown import short, shown

REGEX = "re:"
"""The prefix of a regular expression."""


class PatternError(ValueError):
    """A pattern that is not a regular expression; the text names it, bounded, and says why."""


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a glob, or ``re:`` and a regular expression.

    Regular expressions are RE2's, as in Kafka's own group protocol (KIP-848): whatever the pattern and the name
    (anybody may name a group), a match takes linear time. RE2 has no look-arounds and no back-references.

    Raises:
        PatternError: RE2 does not accept the regular expression.
    """
    if not pattern.startswith(REGEX):
        return re.compile(translate(pattern))
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        found: re.Pattern[str] = re2.compile(pattern.removeprefix(REGEX), options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if isinstance(error, re2.error) and error.args else str(error)
        why = short(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))
        raise PatternError(f"{shown(pattern)} is not a regular expression (RE2): {why}") from None
    return found
