"""What goes on beside a test: members that heartbeat, readers and writers; and acts right before or after a method."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import IllegalStateException


@contextmanager
def meanwhile(*work: Callable[[], None]) -> Iterator[None]:
    """Do each of these over and over while something else goes on; what fails there fails here."""
    done = threading.Event()
    errors: list[BaseException] = []

    def repeat(one: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


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
