"""A YAML document with the line of every key and value, in which a key stands once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from retention_cli.policy.errors import PolicyError, PolicyProblem

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C where that is built in: ten times as quick, also at refusing what is too large."""
MOST_VALUES: Final = 200_000
"""So many keys and values a document may have, what its aliases repeat counted each time."""
MOST_DEPTH: Final = 50
_TOO_MANY: Final = f"has more than {MOST_VALUES:,} keys and values, aliases repeated: write out what is meant"
_TOO_DEEP: Final = f"is nested more than {MOST_DEPTH} deep"

Path = tuple[str | int, ...]
"""Where a value stands: keys and list indexes from the document's root."""


@dataclass(slots=True)
class Document:
    """The document's plain data, and the line (from 1) of each path in it."""

    source: str
    data: Any
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[PolicyProblem] = field(default_factory=list)
    values: int = 0

    def line_of(self, path: Path) -> int | None:
        """Return the line of ``path``, or of the nearest thing that holds it."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return None


def read_document(text: str, source: str) -> Document:
    """Parse one YAML document.

    Raises:
        PolicyError: not YAML, more than one document, nested too deep or without end, or of too many values.
    """
    document = Document(source, None)
    try:
        _bounded(text, source)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _walk(node, (), document, ancestors=())
                document.data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        said = ", ".join(part for part in (error.problem, error.context) if part)
        raise PolicyError([PolicyProblem(source, line, "", f"not YAML: {said}")]) from None
    except RecursionError:  # PyYAML's own, before we have seen a node
        raise PolicyError([PolicyProblem(source, None, "", _TOO_DEEP)]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise PolicyError([PolicyProblem(source, None, "", f"not YAML: {' '.join(str(error).split())}")]) from None
    return document


def _bounded(text: str, source: str) -> None:
    """Refuse what is nested too deep, or of too many values, before a tree is made of it: its makers recurse."""
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


def _walk(node: yaml.Node, path: Path, document: Document, *, ancestors: tuple[int, ...]) -> None:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    document.values += 1
    if document.values > MOST_VALUES:
        raise PolicyError([PolicyProblem(document.source, line, "", _TOO_MANY)])
    if len(path) > MOST_DEPTH:
        raise PolicyError([PolicyProblem(document.source, line, "", _TOO_DEEP)])
    if id(node) in ancestors:  # an anchor that holds itself
        raise ValueError("an alias refers to itself")
    within = (*ancestors, id(node))
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            here = (*path, key)
            if key in first:
                document.problems.append(
                    PolicyProblem(document.source, line, key, f"is given twice (first in line {first[key]})")
                )
            first.setdefault(key, line)
            document.lines.setdefault(here, line)
            if isinstance(value_node, yaml.ScalarNode) and value_node.tag == "tag:yaml.org,2002:null":
                document.problems.append(
                    PolicyProblem(document.source, line, key, "has no value: give one, or take the key out")
                )
            _walk(value_node, here, document, ancestors=within)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), document, ancestors=within)
