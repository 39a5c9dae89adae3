"""Make text from a cluster or a file safe to display: bounded, it can't move the cursor or forge a line. Pure."""

from __future__ import annotations

import reprlib
import shlex
from typing import Final


def printable(text: str) -> str:
    r"""Return text with every non-printable character replaced by its escape, such as ``\x1b`` or ``\u202e``.

    Control characters (C0, C1, newlines), bidirectional overrides and other invisible ones are not printable.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def name_in_text(text: str) -> str:
    """Return a name for a sentence: in quotes where it could not be seen, such as that of the group ``''``."""
    return text if text and text == text.strip() else f"'{text}'"


def shell_word(text: str) -> str:
    r"""Return text as one word of a command line, to be copied: quoted, or ``$'…\x1b…'`` if it is not printable.

    One that ends like a clause of the sentence around it is quoted, too.
    """
    if text.isprintable():
        return f"'{text}'" if text.endswith((",", ".", ":")) and "'" not in text else shlex.quote(text)

    def escaped(one: str) -> str:
        if one.isprintable():
            return f"\\{one}" if one in "\\'" else one
        return "".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogatepass"))

    return f"$'{''.join(map(escaped, text))}'"


MOST: Final = 80
"""No error repeats more characters than this of one value."""
_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = MOST
_REPR.maxlevel = 2


def shown(value: object) -> str:
    """Return a value as Python writes it, ending in … if it is longer than :data:`MOST`."""
    if value is None:
        return "nothing (null)"
    try:
        return short(_REPR.repr(value))
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"


def short(text: str, most: int = MOST) -> str:
    """Return the text; if it is longer, its beginning and …. By default that is longer than any value."""
    return text if len(text) <= most else text[: most - 1] + "…"


def plain(text: str) -> str:
    """Return a name without quotes, if it can be printed so."""
    return short(text) if text.strip() and text.isprintable() else shown(text)
