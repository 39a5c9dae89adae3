"""What goes on beside a test: members that heartbeat, readers and writers; and acts right before or after a method."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import IllegalStateException


@contextmanager
def meanwhile(*work: Callable[[], None]) -> Iterator[None]:
    """Do each of these over and over while something else goes on; what fails there fails here."""
    done = threading.Event()

    def repeat(one: Callable[[], None]) -> None:
        while not done.is_set():
            one()

    with ThreadPoolExecutor(len(work)) as pool:
        repeated = [pool.submit(repeat, one) for one in work]
        try:
            yield
        finally:
            done.set()
    for one in repeated:
        one.result()


@contextmanager
def kept_alive(*consumers: Any) -> Iterator[None]:
    """Let members heartbeat while something else goes on; close them at the end."""

    def poll() -> None:
        for consumer in consumers:
            with suppress(IllegalStateException):  # a share consumer that has yet to acknowledge what it got
                consumer.poll(0.1)

    try:
        with meanwhile(poll):
            yield
    finally:
        for consumer in consumers:
            consumer.close()


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
    honest = getattr(owner, method)

    def followed(*arguments: Any, **more: Any) -> Any:
        answer = honest(*arguments, **more)
        act()
        return answer

    monkeypatch.setattr(owner, method, followed)
