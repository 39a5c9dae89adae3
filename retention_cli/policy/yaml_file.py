"""A YAML document with the line of every key and value, in which a key stands once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from retention_cli.policy.errors import PolicyError, PolicyProblem

Path = tuple[str | int, ...]
"""Where a value stands: keys and list indexes from the document's root."""


@dataclass(slots=True)
class Document:
    """The document's plain data, and the line (from 1) of each path in it."""

    source: str
    data: Any
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[PolicyProblem] = field(default_factory=list)

    def line_of(self, path: Path) -> int | None:
        """Return the line of ``path``, or of the nearest thing that holds it."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return None


def read_document(text: str, source: str) -> Document:
    """Parse one YAML document.

    Raises:
        PolicyError: not YAML, more than one document, or nested without end.
    """
    document = Document(source, None)
    try:
        loader = yaml.SafeLoader(text)
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
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PolicyError([PolicyProblem(source, None, "", f"not YAML: {' '.join(str(error).split())}")]) from None
    return document


def _walk(node: yaml.Node, path: Path, document: Document, *, ancestors: tuple[int, ...]) -> None:
    document.lines.setdefault(path, node.start_mark.line + 1)
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
