"""What goes on beside a test: members that heartbeat, readers and writers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

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
