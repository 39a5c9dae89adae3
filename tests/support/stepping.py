"""Stepping in right before or after a method of the product's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def before(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, act: Callable[[], object], call: int = 1
) -> list[int]:
    """Let something happen right before a method's n-th call; return the numbers of the calls that there were."""
    honest, calls = getattr(owner, method), list[int]()

    def stepped(*arguments: Any, **more: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == call:
            act()
        return honest(*arguments, **more)

    monkeypatch.setattr(owner, method, stepped)
    return calls


def after(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, act: Callable[[], object]) -> None:
    """Let something happen right after each call of a method."""
    honest = getattr(owner, method)

    def followed(*arguments: Any, **more: Any) -> Any:
        answer = honest(*arguments, **more)
        act()
        return answer

    monkeypatch.setattr(owner, method, followed)
