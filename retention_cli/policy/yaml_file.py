"""Read a YAML document with the line of every key and value; a key given twice is a problem."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from retention_cli.core.file_problems import yaml_problem
from retention_cli.policy.errors import PolicyError, PolicyProblem

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader, if PyYAML has it: ten times as fast, also at refusing what is too large."""
MOST_VALUES: Final = 200_000
"""The most keys and values of a document; those that its aliases repeat are counted each time."""
MOST_DEPTH: Final = 50
_TOO_MANY: Final = f"has more than {MOST_VALUES:,} keys and values, counting aliases: write fewer"
_TOO_DEEP: Final = f"is nested more than {MOST_DEPTH} deep"

_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_MERGE: Final = "tag:yaml.org,2002:merge"
_OCTAL: Final = re.compile(r"[-+]?0[0-7_]+")

_UNREAD: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError)
"""What PyYAML raises for a value that its tag does not fit."""

Path = tuple[str | int, ...]
"""A value's place: keys and list indexes from the document's root."""


@dataclass(slots=True)
class Document:
    """The document's plain data, and the line (from 1) of each path in it."""

    source: str
    data: Any
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[PolicyProblem] = field(default_factory=list)
    values: int = 0

    def line_of(self, path: Path) -> int | None:
        """Return the line of ``path``, or of the nearest node that contains it."""
        prefixes = (path[:length] for length in range(len(path), -1, -1))
        return next((self.lines[place] for place in prefixes if place in self.lines), None)

    def problem(self, above: Path, key: str, text: str) -> PolicyProblem:
        """Return a problem of a key in the mapping at ``above``."""
        return PolicyProblem(self.source, self.line_of((*above, key)), key, text)


def read_document(text: str, source: str) -> Document:
    """Parse one YAML document.

    Raises:
        PolicyError: it is not YAML, has several documents, is nested too deep or without end, or has too many values.
    """
    document = Document(source, None)
    try:
        _bounded(text, source)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _walk(node, (), document, loader, ancestors=())
                document.data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        parsers = f"{error.problem}, {error.context}"
        problem = _TOO_DEEP if "nesting depth" in parsers else yaml_problem(parsers)  # PyYAML's own limit, since 6.0.4
        raise PolicyError([PolicyProblem(source, line, "", problem)]) from None
    except yaml.reader.ReaderError as error:
        raise PolicyError([_unreadable(text, error, source)]) from None
    except RecursionError:  # PyYAML's own, before we have seen a node
        raise PolicyError([PolicyProblem(source, None, "", _TOO_DEEP)]) from None
    except _UNREAD as error:
        raise PolicyError([PolicyProblem(source, None, "", yaml_problem(str(error)))]) from None
    return document


def _unreadable(text: str, error: yaml.reader.ReaderError, source: str) -> PolicyProblem:
    """Return the problem of a character that YAML does not allow. The parsers count it in bytes or characters."""
    code = error.character if isinstance(error.character, int) else ord(error.character)
    at = text.find(chr(code)) if code <= sys.maxunicode else -1
    return PolicyProblem(source, None if at < 0 else text.count("\n", 0, at) + 1, "", yaml_problem(str(error)))


def _check_scalar(node: yaml.ScalarNode, loader: Any, source: str) -> None:
    """Refuse a value that its tag does not fit, with its line. PyYAML raises any error: for ``!!bool x`` a KeyError."""
    try:
        loader.construct_object(node)
    except yaml.MarkedYAMLError:
        raise
    except _UNREAD as error:
        raise PolicyError([PolicyProblem(source, node.start_mark.line + 1, "", yaml_problem(str(error)))]) from None


def _misread(node: yaml.ScalarNode) -> str | None:
    """Return what is wrong with a number that YAML 1.1 reads as another one than people do, None if it is no such one.

    A day as 24:00:00 is 86,400 ms to it, and 072 hours are 58: records would be trimmed that the operator did not mean.
    """
    if node.tag not in _NUMBERS:
        return None
    if ":" in node.value:
        return "has a colon, so YAML reads it as base 60: give a plain number, or a text such as '24h'"
    if _OCTAL.fullmatch(node.value):
        return "begins with 0, so YAML reads it as octal: remove the 0, or quote it if it is text"
    return None


def _bounded(text: str, source: str) -> None:
    """Refuse text that is nested too deep or has too many values, before a tree is built: building it recurses."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        wrong = _TOO_DEEP if depth > MOST_DEPTH + 1 else _TOO_MANY if nodes > 2 * MOST_VALUES else None
        if wrong is not None:
            line = None if event.start_mark is None else event.start_mark.line + 1
            raise PolicyError([PolicyProblem(source, line, "", wrong)])


def _walk(node: yaml.Node, path: Path, document: Document, loader: Any, *, ancestors: tuple[int, ...]) -> None:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    document.values += 1
    if document.values > MOST_VALUES:
        raise PolicyError([PolicyProblem(document.source, line, "", _TOO_MANY)])
    if len(path) > MOST_DEPTH:
        raise PolicyError([PolicyProblem(document.source, line, "", _TOO_DEEP)])
    if id(node) in ancestors:  # an anchor that contains itself
        raise ValueError("an alias refers to itself")
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node, loader, document.source)
        if (wrong := _misread(node)) is not None:
            key = next((part for part in reversed(path) if isinstance(part, str)), "")
            document.problems.append(PolicyProblem(document.source, line, key, wrong))
    within = (*ancestors, id(node))
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = "?"
            if isinstance(key_node, yaml.ScalarNode):
                key = str(key_node.value)
                if key_node.tag != _MERGE:
                    _check_scalar(key_node, loader, document.source)
            here = (*path, key)
            if key in first:
                document.problems.append(
                    PolicyProblem(document.source, line, key, f"is given twice (first in line {first[key]})")
                )
            first.setdefault(key, line)
            document.lines.setdefault(here, line)
            if isinstance(value_node, yaml.ScalarNode) and value_node.tag == "tag:yaml.org,2002:null":
                document.problems.append(
                    PolicyProblem(document.source, line, key, "has no value: give one, or remove the key")
                )
            _walk(value_node, here, document, loader, ancestors=within)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), document, loader, ancestors=within)
