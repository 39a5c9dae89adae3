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


def shell_word(text: str) -> str:
    r"""Return text as one word of a command line, to be copied: quoted, or ``$'…\x1b…'`` if it is not printable."""
    if text.isprintable():
        return shlex.quote(text)
    parts = []
    for one in text:
        if one in "\\'":
            parts.append(f"\\{one}")
        elif one.isprintable():
            parts.append(one)
        else:
            parts.append("".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogatepass")))
    return f"$'{''.join(parts)}'"
