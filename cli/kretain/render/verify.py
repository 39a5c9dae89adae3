"""Print whether audit logs are intact, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.text import count
from retention_cli.trim.history import Verified

FORMAT = "kretain.audit/v1"
COLUMNS = ("cluster", "file", "lines", "older", "removed", "since", "behind", "breaks")
MOST = 20
"""At most this many breaks of a log are shown, the others counted."""


def print_verified(found: Sequence[Verified], output: Output) -> None:
    """Print one line per intact log, otherwise one line per break: ``file:line: what it means``."""
    rows = [_row(one) for one in found]
    match output:
        case Output.json:
            data.print_json({"format": FORMAT}, "logs", rows)
        case Output.yaml:
            data.print_yaml({"format": FORMAT, "logs": rows})
        case Output.csv:
            breaks = [[one.log.shown(broken) for broken in one.chain.breaks] for one in found]
            data.print_csv(COLUMNS, [{**row, "breaks": told} for row, told in zip(rows, breaks, strict=True)])
        case Output.table:
            if not found:
                screen.say("No audit log yet: nothing was trimmed.", "bold")
            for one in found:
                _print(one)


def _print(one: Verified) -> None:
    chain = one.chain
    if not chain.breaks:
        screen.say(f"{one.cluster}: {'; '.join(_calm(one))}.")
        return
    for broken in chain.breaks[:MOST]:
        screen.say(one.log.shown(broken), "red")
    if (left := len(chain.breaks) + chain.more - MOST) > 0:
        screen.say(f"{one.log.path}: and {count(left, 'more break')}", "red")


def _calm(one: Verified) -> list[str]:
    chain = one.chain
    if chain.since is None:
        return [f"{count(chain.lines, 'line')}, none of them chained: the next trim begins the chain"]
    said = [f"{count(chain.lines - chain.older, 'line')}, unbroken since {chain.since}"]
    if chain.older:
        said.append(f"{count(chain.older, 'older line')} before that, of a kretain that did not chain them")
    if chain.removed:
        said.append(f"the files before it, with {count(chain.removed, 'line')}, were removed")
    if chain.behind:
        said.append("the head is one line behind, as a crash leaves it: nothing is missing")
    return said


def _row(one: Verified) -> dict[str, Any]:
    chain = one.chain
    return {
        "cluster": one.cluster,
        "file": str(one.log.path),
        "lines": chain.lines,
        "older": chain.older,
        "removed": chain.removed,
        "since": chain.since,
        "behind": chain.behind,
        "breaks": [{"file": broken.file, "line": broken.line, "text": broken.text} for broken in chain.breaks],
    }
