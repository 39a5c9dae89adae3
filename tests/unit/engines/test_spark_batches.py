"""Clusters go through the steps of a plan in batches: whole, in order, one ahead of the next step and no more."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.engines.spark.batches import StoppedError, Threads, in_batches


@given(sizes=st.lists(st.integers(0, 9), max_size=20), most=st.integers(1, 12))
def test_batches_are_whole_clusters_in_order_and_as_few_as_have_room(sizes: list[int], most: int) -> None:
    batches = list(in_batches(enumerate(sizes), lambda one: one[1], most))
    assert [one for batch in batches for one in batch] == list(enumerate(sizes))
    assert all(batch for batch in batches)
    assert all(len(batch) == 1 or sum(size for _, size in batch) <= most for batch in batches)
    for batch, following in itertools.pairwise(batches):
        assert sum(size for _, size in (*batch, following[0])) > most or sum(size for _, size in batch) == most


def test_a_batch_that_is_full_waits_for_no_other_cluster() -> None:
    """The next one may take a while to answer."""

    def clusters() -> Iterator[int]:
        yield 5
        raise AssertionError("the next one was waited for")

    assert next(in_batches(clusters(), int, 5)) == [5]


def test_each_step_is_one_item_ahead_and_no_more() -> None:
    began: dict[str, list[int]] = {"read": [], "decided": []}
    changed = threading.Condition()

    def step(name: str, items: Any) -> Iterator[int]:
        for one in items:
            with changed:
                began[name].append(one)
                changed.notify_all()
            yield one

    def reached(name: str, many: int) -> bool:
        with changed:
            return changed.wait_for(lambda: len(began[name]) == many, 10)

    with Threads() as threads:
        found = threads.ahead(step("decided", threads.ahead(step("read", range(9)))))
        for number in range(9):
            assert reached("decided", min(9, number + 1))  # one waits, or is at work
            assert reached("read", min(9, number + 2))
            assert next(found) == number
        assert list(found) == []
    assert began == {"read": [*range(9)], "decided": [*range(9)]}


def test_steps_of_different_items_run_at_the_same_time() -> None:
    """Three meet: none of them could get on alone."""
    together = threading.Barrier(3)

    def step(items: Any, first: int) -> Iterator[int]:
        for one in items:
            if one == first:
                together.wait(10)
            yield one

    with Threads() as threads:
        for one in threads.ahead(step(threads.ahead(step(range(4), 2)), 1)):
            if one == 0:
                together.wait(10)


@pytest.mark.parametrize("where", ["source", "first", "second"])
def test_an_error_is_raised_in_place_of_its_item_and_items_before_it_arrive(where: str) -> None:
    def step(name: str, items: Any) -> Iterator[int]:
        for one in items:
            if one == 2 and where == name:
                raise ValueError(f"of the {name} step")
            yield one

    with Threads() as threads:
        found = threads.ahead(step("second", threads.ahead(step("first", step("source", range(5))))))
        assert [next(found), next(found)] == [0, 1]
        for _ in range(2):
            with pytest.raises(ValueError, match=f"of the {where} step"):
                next(found)


class Jobs:
    """What a thread waits for until it is interrupted, as it does for a job of Spark's."""

    def __init__(self, deaf: int) -> None:
        self._deaf = deaf
        self._interrupted = threading.Event()
        self.asked = 0

    def interruptAll(self) -> None:  # noqa: N802  (PySpark's name)
        self.asked += 1
        if self.asked > self._deaf:  # before, the job has not begun yet
            self._interrupted.set()
        raise OSError("Spark is gone")

    def run(self) -> None:
        assert self._interrupted.wait(30)
        raise OSError("the job was cancelled")


def test_who_leaves_early_has_jobs_interrupted_until_all_have_ended() -> None:
    jobs, running, began = Jobs(deaf=2), threading.Event(), []

    def read(one: int) -> int:
        began.append(one)
        if one:
            running.set()
            jobs.run()
        return one

    def left() -> None:
        with Threads() as threads:
            threads.session = jobs
            for _ in threads.ahead(map(int, threads.ahead(map(read, range(5))))):
                assert running.wait(10)
                raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        left()
    assert time.monotonic() - started < 4
    assert jobs.asked > 2
    assert began == [0, 1]


def test_a_step_that_takes_several_items_takes_no_more_once_it_is_stopped() -> None:
    """A batch of many small clusters, that is put together from one after the other."""
    taken: list[int] = []
    began = threading.Event()
    threads = Threads()

    def gathered(items: Any) -> list[int]:
        for one in items:
            taken.append(one)
            began.set()
            with contextlib.suppress(StoppedError):
                while True:
                    threads.check()
                    time.sleep(0.01)
        return taken

    with threads:
        threads.ahead(map(gathered, [threads.ahead(range(1_000), spark=False)]))
        assert began.wait(10)
    assert len(taken) <= 2  # the second one may have been made by then


def test_nothing_begins_once_nobody_waits_for_it() -> None:
    """A thread between two jobs is not affected by an interrupt, and begins none."""
    threads = Threads()
    with threads:
        threads.check()
    with pytest.raises(StoppedError):
        threads.check()


def test_who_does_not_use_spark_is_not_waited_for() -> None:
    """A broker may take as long as its time-out to answer, and Ctrl-C is at once."""
    asked, answered = threading.Event(), threading.Event()

    def ask(one: int) -> int:
        asked.set()
        answered.wait(30)
        return one

    started = time.monotonic()
    with Threads() as threads:
        threads.ahead(map(ask, range(3)), spark=False)
        assert asked.wait(10)
    assert time.monotonic() - started < 2
    answered.set()
