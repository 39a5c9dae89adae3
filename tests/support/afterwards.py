"""What happens right after a call of kretain's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, then: Callable[[], object]) -> None:
    """Let each call of a method end with this, once it has done its work."""
    honest = getattr(owner, name)

    def followed(*given: Any, **named: Any) -> Any:
        answer = honest(*given, **named)
        then()
        return answer

    monkeypatch.setattr(owner, name, followed)
