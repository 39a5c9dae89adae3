"""Command lines in texts, to be copied. Pure.

Code that writes a reason does not know how the cluster is reached: the line says ``HOST:PORT``, and the command line
tool replaces that when it prints the text (:func:`Reach.complete`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from retention_cli.core.printable import shell_word

_KAFKA: Final = "--bootstrap-server HOST:PORT"
_OURS: Final = "-b HOST:PORT"


def kafka_tool(tool: str, *arguments: str) -> str:
    """Return the line that runs one of Kafka's own tools, such as ``kafka-acls.sh``."""
    return " ".join([tool, _KAFKA, *map(shell_word, arguments)])


def grant_line(operation: str, kind: str, name: str = "", *, prefixed: bool = False) -> str:
    """Return the line that grants a right on a topic, a group or the cluster to a user, to be named.

    ``prefixed``: on all whose names begin with ``name``.
    """
    what = [f"--{kind}", name] if kind != "cluster" else ["--cluster"]
    if prefixed:
        what += ["--resource-pattern-type", "prefixed"]
    return kafka_tool("kafka-acls.sh", "--add", "--allow-principal", "User:NAME", *what, "--operation", operation)


def kretain(*arguments: str, names: tuple[str, ...] = ()) -> str:
    """Return the line that runs kretain. ``names`` come last: others chose them, and they may look like options."""
    dashes = ["--"] if any(one.startswith("-") for one in names) else []
    return " ".join(["kretain", *map(shell_word, arguments), _OURS, *dashes, *map(shell_word, names)])


class Reach(NamedTuple):
    """How a cluster is reached: the words for Kafka's tools, and those for kretain."""

    kafka: tuple[str, ...]
    ours: tuple[str, ...]

    def complete(self, text: str, quoted: Callable[[str], str] = str) -> str:
        """Return the text with its command lines completed; ``quoted`` says how words stand in it."""
        if "HOST:PORT" not in text:
            return text
        kafka = quoted(" ".join(map(shell_word, self.kafka)))
        consumer = f"kafka-console-consumer.sh {kafka}".replace("--command-config", "--consumer.config")
        text = text.replace(f"kafka-console-consumer.sh {_KAFKA}", consumer).replace(_KAFKA, kafka)
        return text.replace(_OURS, quoted(" ".join(map(shell_word, self.ours))))
