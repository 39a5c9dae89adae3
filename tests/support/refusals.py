"""What an error says that a call must end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

E = TypeVar("E", bound=Exception)


def raised(kind: type[E], call: Callable[..., object], /, *arguments: Any, **named: Any) -> E:
    """Call with these arguments, which must raise such an error; return it."""
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    return caught.value


def refusal(kind: type[Exception], call: Callable[..., object], /, *arguments: Any, **named: Any) -> str:
    """Call with these arguments, which must raise such an error; return its text."""
    return str(raised(kind, call, *arguments, **named))
