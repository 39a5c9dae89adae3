"""Draw columns over time with block characters, or in ASCII if the stream can't show those."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

HEIGHT: Final = 5
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_ASCII: Final = " .:#"


def takes_blocks() -> bool:
    """Return whether stdout can show block characters."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def columns(values: Sequence[int], width: int, *, blocks: bool, height: int = HEIGHT) -> list[str]:
    """Return lines, the top first, in which each value is a column of equal width; together at most ``width`` wide.

    A value above zero is always visible.
    """
    signs = _BLOCKS if blocks else _ASCII
    most = max(values, default=0)
    steps = (len(signs) - 1) * height
    heights = [0 if one <= 0 else max(1, round(one * steps / most)) for one in values]
    wide = max(1, min(width // max(1, len(values)), 4))
    lines = []
    for row in range(height - 1, -1, -1):
        floor = row * (len(signs) - 1)
        cells = (signs[min(max(one - floor, 0), len(signs) - 1)] * wide for one in heights)
        lines.append("".join(cells).rstrip())
    return lines


def axis(left: str, right: str, width: int) -> str:
    """Return a line with a text under each end of the columns; if it is too narrow, the right text follows the left."""
    return left + " " * max(2, width - len(left) - len(right)) + right
