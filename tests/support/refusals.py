"""What an error says that a call must end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(kind: type[Exception], call: Callable[..., object], /, *arguments: Any, **named: Any) -> str:
    """Call with these arguments, which must raise such an error; return its text."""
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    return str(caught.value)
