"""A webhook that tests post to: it remembers each body, answers with a status, or never answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.http_server import Answer, LocalServer


class Webhook(LocalServer):
    """A webhook; ``status`` is that of each answer, None: no answer at all until it is closed."""

    PATH = "/services/T0/B0/s3cr3t"

    def __init__(self, status: int | None = 200) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []
        self.url = f"{self.address}{self.PATH}"
        self._status = status
        if status is None:
            self.hold.clear()

    def reply(self, path: str, _headers: Mapping[str, str], content: bytes) -> Answer | None:
        assert path == self.PATH
        self.bodies.append(json.loads(content))
        self.hold.wait(60)
        return None if self._status is None else (self._status, {}, b"")

    def events(self) -> list[str]:
        return [one["event"] for one in self.bodies]
