"""Make text from a cluster or a file safe to display: it can't move the cursor or forge a line. Pure."""

from __future__ import annotations

import shlex


def printable(text: str) -> str:
    r"""Return text with every non-printable character replaced by its escape, such as ``\x1b`` or ``\u202e``.

    Control characters (C0, C1, newlines), bidirectional overrides and other invisible ones are not printable.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def name_in_text(text: str) -> str:
    """Return a name as a sentence has it: in quotes where it could not be seen, as that of the group ``''``."""
    return text if text and text == text.strip() else f"'{text}'"


def shell_word(text: str) -> str:
    r"""Return text as one word of a command line, to be copied: quoted, or ``$'…\x1b…'`` if it is not printable.

    One that ends like a clause of the sentence around it is quoted, too.
    """
    if text.isprintable():
        return f"'{text}'" if text.endswith((",", ".", ":")) and "'" not in text else shlex.quote(text)
    parts = []
    for one in text:
        if one in "\\'":
            parts.append(f"\\{one}")
        elif one.isprintable():
            parts.append(one)
        else:
            parts.append("".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogatepass")))
    return f"$'{''.join(parts)}'"
