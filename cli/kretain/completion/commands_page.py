"""The page of all commands, grouped as the overview has them, with the options that many share told once. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

MANY: Final = 8
"""An option that reads the same in so many commands is a shared one."""
_OPTION: Final = re.compile(r"(?m)^\* `-.*$\n?")
_HEADING: Final = re.compile(r"(?m)^(#{2,3}) `([^`]+)`$")


def commands_page(reference: str, groups: Mapping[str, str]) -> str:
    """Return the page, in Markdown.

    Args:
        reference: all commands' help, as :func:`kretain.completion.generated.reference` makes it.
        groups: each command's group, in the order of the page.
    """
    head, *sections = re.split(r"(?m)^(?=## `)", reference)
    shared = _shared(sections)
    told = "".join(f"{one}\n" for one in shared)
    page = [
        head.split("**Commands**:")[0].rstrip(),
        "",
        "## Shared options",
        "",
        "Most commands take these, too.",
        "",
        told,
    ]
    by_name = {_name(section): section for section in sections}
    for group in dict.fromkeys(groups.values()):
        page += [f"## {group}", ""]
        for name in (one for one, of in groups.items() if of == group and one in by_name):
            page += [_HEADING.sub(r"#\1 `\2`", _without(by_name[name], set(shared))).rstrip(), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(page)).strip() + "\n"


def _name(section: str) -> str:
    return section.split("`", 2)[1].removeprefix("kretain ")


def _shared(sections: list[str]) -> list[str]:
    """Return the lines of options that many commands have, in the order in which they come first."""
    parts = [part for section in sections for part in re.split(r"(?m)^(?=### `)", section)]
    counted = Counter(line for part in parts for line in set(_lines(part)))
    seen = dict.fromkeys(line for part in parts for line in _lines(part))
    return [line for line in seen if counted[line] >= MANY]


def _lines(part: str) -> list[str]:
    return [line.rstrip("\n") for line in _OPTION.findall(part)]


def _without(section: str, shared: set[str]) -> str:
    """Return a section without the shared options, and with a word on them where there were some."""

    def left(match: re.Match[str]) -> str:
        return "" if match[0].rstrip("\n") in shared else match[0]

    parts = []
    for part in re.split(r"(?m)^(?=### `)", section):
        kept = _OPTION.sub(left, part)
        if kept != part:
            kept = kept.replace("**Options**:\n", "**Options**, beside the [shared ones](#shared-options):\n", 1)
        parts.append(kept)
    return "".join(parts)
