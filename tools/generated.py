"""The generated files: ``completions/``, ``man/``, ``docs/commands.md`` and ``docs/reasons.md``.

``python tools/generated.py`` writes them; ``--check`` only reports which are out of date.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kretain.app import COMMANDS
from kretain.completion.shells import SCRIPTS
from kretain.texts import source
from retention_cli import __version__

COMPLETIONS = {"bash": "kretain.bash", "zsh": "_kretain", "fish": "kretain.fish"}
REASONS: Final = """# Reason codes

A plan shows the codes under "held back by", and a sentence for each below the table. In JSON both are in `reasons`.
`kretain why CODE` prints these sections, with your cluster's address in the commands.

"""
MANY: Final = 8
"""An option that reads the same in so many commands is a shared one."""
_OPTION: Final = re.compile(r"(?m)^\* `-.*$\n?")
_HEADING: Final = re.compile(r"(?m)^(#{2,3}) `([^`]+)`$")
_BULLET: Final = re.compile(r"\* (.+?)(?:: (.*))?$")
_SECTION: Final = re.compile(r"(?m)^\*\*(\w[\w ]*)\*\*:?$")
_RELATED: Final = {
    "kretain-plan": ("kretain-trim", "kretain-explain", "kretain-policy", "kretain-why"),
    "kretain-trim": ("kretain-plan", "kretain-watch", "kretain-history", "kretain-restore"),
    "kretain-watch": ("kretain-trim", "kretain-policy"),
    "kretain-offsets": ("kretain-groups", "kretain-explain"),
    "kretain-groups": ("kretain-offsets", "kretain-ledger"),
    "kretain-disk": ("kretain-segments", "kretain-forecast"),
    "kretain-archive": ("kretain-restore",),
    "kretain-policy": ("kretain-plan", "kretain-context"),
    "kretain-doctor": ("kretain-context", "kretain-plan"),
}
"""What SEE ALSO names, beside kretain(1)."""


def reference() -> str:
    """Return every command's help as one page."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "commands.md"
        command = [sys.executable, "-m", "typer", "kretain.app", "utils", "docs", "--name", "kretain"]
        subprocess.run([*command, "--title", "Commands", "--output", str(page)], check=True, capture_output=True)
        text = page.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(Examples?):$", r"**\1**\n", text)
    text = re.sub(r"(?m)^(\* `[^`]+?) <(?:list\[)?(?:str|path|Path)\]?>`", r"\1`", text)  # an argument's type
    text = re.sub(r"(?m)^  ((?:kretain|source) .*)$", r"    \1", text)  # examples are code
    return html.unescape(text).strip() + "\n"


def wanted(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each generated file, and its expected content."""
    for shell, name in COMPLETIONS.items():
        yield root / "completions" / name, SCRIPTS[shell].strip() + "\n"
    page = reference()
    yield root / "docs" / "commands.md", commands_page(page, {name: one[0] for name, one in COMMANDS.items()})
    yield root / "docs" / "reasons.md", REASONS + re.sub(r"\bdocs/([\w/-]+\.md)", r"[\1](\1)", source())
    scripts = (root / "docs" / "scripts.md").read_text(encoding="utf-8")
    for name, text in manual_pages(page, scripts, __version__).items():
        yield root / "man" / name, text


def commands_page(reference: str, groups: Mapping[str, str]) -> str:
    """Return the page, in Markdown.

    Args:
        reference: all commands' help, as :func:`reference` makes it.
        groups: each command's group, in the order of the page.
    """
    head, *sections = re.split(r"(?m)^(?=## `)", reference)
    shared = _shared_lines(sections)
    page = [
        head.split("**Commands**:")[0].rstrip(),
        "",
        "## Shared options",
        "",
        "Most commands take these, too.",
        "",
        "".join(f"{one}\n" for one in shared),
    ]
    by_name = {_section_name(section): section for section in sections}
    for group in dict.fromkeys(groups.values()):
        page += [f"## {group}", ""]
        for name in (one for one, of in groups.items() if of == group and one in by_name):
            page += [_HEADING.sub(r"#\1 `\2`", _without(by_name[name], set(shared))).rstrip(), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(page)).strip() + "\n"


def _section_name(section: str) -> str:
    return section.split("`", 2)[1].removeprefix("kretain ")


def _shared_lines(sections: list[str]) -> list[str]:
    """Return the lines of options that many commands have, in the order in which they come first."""
    parts = [part for section in sections for part in re.split(r"(?m)^(?=### `)", section)]
    counted = Counter(line for part in parts for line in set(_option_lines(part)))
    seen = dict.fromkeys(line for part in parts for line in _option_lines(part))
    return [line for line in seen if counted[line] >= MANY]


def _option_lines(part: str) -> list[str]:
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


def manual_pages(reference: str, scripts: str, version: str) -> dict[str, str]:
    """Return the manual pages by file name: ``kretain.1``, and one for each command with its subcommands.

    Args:
        reference: the page of all commands, in Markdown, with a heading ``## `kretain NAME` `` for each.
        scripts: docs/scripts.md, whose tables of exit codes, variables and files end each page.
        version: of kretain.
    """
    parts = re.split(r"(?m)^## `([^`]+)`$", reference)
    names = [name.replace(" ", "-") for name in parts[1::2]]
    tables = [*_tables(scripts)]
    pages = {"kretain.1": _page("kretain", parts[0].removeprefix("# Commands\n"), version, [*tables, *_see(names)])}
    for name, text in zip(names, parts[2::2], strict=True):
        pages[f"{name}.1"] = _page(name, text, version, [*tables, *_see(["kretain", *_RELATED.get(name, ())])])
    return pages


def _tables(scripts: str) -> Iterator[str]:
    """Yield the lines of EXIT STATUS, ENVIRONMENT and FILES."""
    for title, heading in (("EXIT STATUS", "Exit codes"), ("ENVIRONMENT", "Environment variables"), ("FILES", "Files")):
        section = scripts.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        yield f".SH {title}"
        for name, meaning in re.findall(r"(?m)^\| ((?:`|\d)[^|]*) \| (.+) \|$", section):
            yield from (".TP", _inline(name), _inline(re.sub(r" ?\(?\[[^]]*\]\([^)]*\)\)?", "", meaning)))


def _see(names: Sequence[str]) -> list[str]:
    return [".SH SEE ALSO", ", ".join(f"\\fB{_characters(name)}\\fR(1)" for name in names)]


def _page(name: str, text: str, version: str, tail: Sequence[str]) -> str:
    summary = text.strip().split("\n", 1)[0].split(". ", 1)[0].rstrip(".")
    own, *subcommands = re.split(r"(?m)^(?=### )", text.strip())
    head, *rest = _SECTION.split(own)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    usage, examples = sections.pop("Usage", ""), sections.pop("Examples", "")
    lines = [
        f'.TH {name.upper()} 1 "" "kretain {version}" "kretain"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_inline(summary)}",
        *_section("Synopsis", usage),
        *_section("Description", head),
    ]
    for title, body in sections.items():
        lines += _section(title, body)
    for part in subcommands:
        lines += _lines(part.strip())
    return "\n".join([*lines, *_section("Examples", examples), *tail]) + "\n"


def _section(title: str, body: str) -> list[str]:
    return [f".SH {title.upper()}", *_lines(body.strip("\n"))] if body.strip() else []


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
        elif section := _SECTION.match(line):
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


def main() -> None:
    """Write or check the generated files, in the project's folder."""
    stale = []
    for path, text in wanted(Path.cwd()):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run: make generated")


if __name__ == "__main__":
    main()
