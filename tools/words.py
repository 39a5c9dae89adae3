"""Check what people read: no odd turns of phrase, no sentence over 30 words, no help line over 80 characters.

``python tools/words.py`` checks the command line's help, the texts, docstrings and comments in the code, and every
page that is not in :data:`GENERATED`; with paths it checks these pages alone. It prints ``file:line: problem`` and
exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from kretain.app import COMMANDS, app

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("retention_cli", "cli/kretain")
LONGEST_SENTENCE: Final = 30
LONGEST_HELP: Final = 80
TICS: Final = {
    r"\btold\b": "say who tells: shown, known",
    r"\banew\b": "again",
    r"\bwhatever\b": "any",
    r"\blikewise\b": "too",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\blet(s|ting)? go of\b": "release",
    r"\bgo(es)? by\b": "use",
    r"\bby the word of\b": "according to",
    r"\btaken for\b": "treated as",
    r"\bas it is\b": "unchanged",
    r"\bnobody\b": "name who",
    r"\bsomebody\b": "name who",
    r"\beverybody\b": "every group, everyone",
    r"\bis (said|told)\b": "name who says it",
    r"\banybody\b": "anyone, or name who",
    r"\bwhole\b(?! (segment|number))": "complete",
    r"\bwholly\b": "completely",
    r"\b(is|are|was|were|be) (not |no longer )?there\b(?! (is|are|was|were|a|no)\b)": "exists",
    r"\bbe had\b": "read, available",
    r"\bat the most\b": "at most",
    r"\bfor ever\b": "forever",
    r"\blately\b": "recently",
    r"\bbears? (it |them )?out\b": "confirm",
    r"\bspeaks? of\b": "name, apply to",
    r"\bstands? still\b": "does not move",
    r"\b(in silence|without a word)\b": "without a message",
}
"""What reads like a translation, and what to write instead."""
_SQL: Final = re.compile(r"\b(SELECT|INSERT|ATTACH)\b|\bwhole\.partitions\b")
_VAGUE: Final = re.compile(
    r"(?:^|_)(told|said|asked|kept|near|odd|sure|aged|words|whole|deeds|looks|pieces|places|borne)(?:_|$)"
)
"""What a name must not be made of: it would not tell a Kafka engineer what the thing is."""
_STORED_NAMES: Final = frozenset({"whole_segments"})
"""Names that evidence files contain."""
GENERATED: Final = frozenset({"docs/commands.md", "docs/reasons.md"})
"""Pages that are generated from texts that are checked."""


def problems(name: str, text: str) -> Iterator[str]:
    """Yield the problems of a page in Markdown, with the line of the paragraph that each is in."""
    line = 1
    code = False
    for paragraph in re.split(r"(\n\s*\n|^```.*$)", text, flags=re.MULTILINE):
        code ^= paragraph.startswith("```")
        if not code and paragraph.strip():
            yield from (f"{name}:{line}: {problem}" for problem in _problems(paragraph))
        line += paragraph.count("\n")


def _problems(paragraph: str) -> Iterator[str]:
    plain = re.sub(r"`[^`]*`[,;]?", "", re.sub(r"\]\([^)]*\)", "]", paragraph))  # names in code are no words
    for tic, better in TICS.items():
        yield from (f"{found[0]!r}: {better}" for found in re.finditer(tic, plain, re.IGNORECASE))
    is_table = plain.lstrip().startswith("|")
    for item in plain.split("|") if is_table else re.split(r"\n(?=\s*(?:- |\d+\. ))", plain):
        for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(item.split())):
            if (words := len(sentence.split())) > LONGEST_SENTENCE:
                yield f"a sentence of {words} words: {' '.join(sentence.split()[:6])} …"


def helps() -> Iterator[tuple[str, str]]:
    """Yield each text of ``--help`` and whose it is."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, str]]:
        yield f"{name} --help", (command.help or "").partition("\n")[0]
        for one in command.params:
            yield f"{name} {one.opts[0]}", getattr(one, "help", None) or ""
        for child, its in getattr(command, "commands", {}).items():
            yield from walk(its, f"{name} {child}")

    root: Any = typer.main.get_command(app)
    for name in COMMANDS:
        yield from walk(root.get_command(None, name), f"kretain {name}")


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text of a module that is no docstring, and its line: messages, reasons, notes and hints."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def prose(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each docstring and each block of comments of a module, and its first line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [one for one in tokens if one.type == tokenize.COMMENT]
    blocks: list[list[tokenize.TokenInfo]] = []
    for one in comments:
        (line, column) = one.start
        if blocks and blocks[-1][-1].start == (line - 1, column):
            blocks[-1].append(one)
        else:
            blocks.append([one])
    yield from ((block[0].start[0], "\n".join(one.string.lstrip("#") for one in block)) for block in blocks)


def phrases(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each odd turn of phrase in a module's docstrings and comments, and its line.

    Text in backticks is code, and so are the names before the colons under ``Args:``.
    """
    for first, text in prose(module, tree):
        plain = re.sub(
            r"(`+)[^`]+\1|^ +\w+:(?= )", lambda code: "`" + "\n" * code[0].count("\n"), text, flags=re.MULTILINE
        )
        for tic, better in TICS.items():
            for found in re.finditer(tic.replace(" ", r"\s+"), plain, re.IGNORECASE):
                yield first + plain.count("\n", 0, found.start()), f"{' '.join(found[0].split())!r}: {better}"


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each name that a module defines and that says little, and its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if name in _STORED_NAMES:
            continue
        if found := _VAGUE.search(re.sub(r"([A-Z])", r"_\1", name).lower()):
            yield node.lineno, f"the name {name}: {found[1]} does not say what it is"


def main(paths: list[str]) -> int:
    """Print the problems; return 1 if there are any."""
    single = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "cli/kretain/reasons.md")
    folders = (ROOT / "docs", ROOT / "docs/runbooks")
    every = (*(ROOT / one for one in single), *(page for one in folders for page in sorted(one.glob("*.md"))))
    pages = [Path(one) for one in paths] or [one for one in every if str(one.relative_to(ROOT)) not in GENERATED]
    found = [one for page in pages for one in problems(page.name, page.read_text(encoding="utf-8"))]
    modules = () if paths else [one for folder in CODE for one in sorted((ROOT / folder).rglob("*.py"))]
    for module in modules:
        source = module.read_text(encoding="utf-8")
        tree = ast.parse(source)
        for line, text in literals(tree):
            plain = "" if _SQL.search(text) else text
            tics = [better for tic, better in TICS.items() if re.search(tic, plain, re.IGNORECASE)]
            found += [f"{module.relative_to(ROOT)}:{line}: {text[:60]!r}: {better}" for better in tics]
        found += [
            f"{module.relative_to(ROOT)}:{line}: {problem}"
            for line, problem in sorted([*phrases(source, tree), *names(tree)])
        ]
    for one in () if paths else sorted((ROOT / "cli/kretain/recipes").glob("*.yaml")):
        comments = "\n\n".join(re.findall(r"(?m)# (.*)$", one.read_text(encoding="utf-8")))
        found += problems(one.name, comments)
    for name, text in () if paths else helps():
        found += problems(name, text)
        if len(text) > LONGEST_HELP:
            found.append(f"{name}: a line of {len(text)} characters: {text[:40]} …")
    sys.stdout.writelines(f"{one}\n" for one in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
