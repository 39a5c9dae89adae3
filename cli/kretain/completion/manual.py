"""Manual pages, made from the page of all commands (:func:`kretain.completion.generated.reference`). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_BULLET: Final = re.compile(r"\* (.+?)(?:: (.*))?$")
_SECTION: Final = re.compile(r"\*\*(\w[\w ]*)\*\*:?$")


def manual_pages(reference: str, version: str) -> dict[str, str]:
    """Return the manual pages by file name: ``kretain.1``, and one for each command with its subcommands.

    Args:
        reference: the page of all commands, in Markdown, with a heading ``## `kretain NAME` `` for each.
        version: of kretain.
    """
    parts = re.split(r"(?m)^## `([^`]+)`$", reference)
    pages = {"kretain.1": _page("kretain", parts[0].removeprefix("# Commands\n"), version)}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        dashed = name.replace(" ", "-")
        pages[f"{dashed}.1"] = _page(dashed, text, version)
    return pages


def _page(name: str, text: str, version: str) -> str:
    body = text.strip()
    summary = body.split("\n", 1)[0].split(". ", 1)[0].rstrip(".")
    head = [
        f'.TH {name.upper()} 1 "" "kretain {version}" "kretain"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_inline(summary)}",
        ".SH DESCRIPTION",
    ]
    return "\n".join([*head, *_lines(body)]) + "\n"


def _lines(body: str) -> Iterator[str]:
    """Yield roff for Markdown of the kind that the reference has."""
    code = False
    for line in body.splitlines():
        if line.startswith("```"):
            code = not code
            yield ".nf" if code else ".fi"
        elif code:
            yield _escaped(line.removeprefix("$ "))
        elif line.startswith("#"):
            yield f".SH {_escaped(line.strip('# `')).upper()}"
        elif section := _SECTION.fullmatch(line):
            yield f".SS {_escaped(section[1])}"
        elif bullet := _BULLET.fullmatch(line):
            yield ".TP"
            yield _inline(bullet[1])
            if bullet[2]:
                yield _inline(bullet[2])
        elif line.startswith("    "):
            yield from (".nf", _escaped(line), ".fi")
        elif line.strip():
            yield _inline(line.strip())
        else:
            yield ".PP"


def _inline(text: str) -> str:
    """Return a line with its code and bold parts in bold."""
    parts = re.split(r"`([^`]*)`|\*\*([^*]+)\*\*", text)
    return _start(
        "".join(
            _characters(plain) + (f"\\fB{_characters(code or bold)}\\fR" if code or bold else "")
            for plain, code, bold in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True)
        )
    )


def _escaped(text: str) -> str:
    return _start(_characters(text))


def _characters(text: str) -> str:
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in plain)


def _start(line: str) -> str:
    """Return a line that roff takes for text: one that begins with a dot or a quote would be a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line
