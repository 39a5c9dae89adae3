"""Work is packed into tasks: no broker is asked by too many, none has the work of several, nothing is left out."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.engines.spark.packing import pack, share, task_of
from retention_cli.engines.spark.shuffle_keys import keys

sizes = st.dictionaries(
    st.tuples(st.sampled_from(["eu", "us", "asia"]), st.integers(-1, 12)), st.integers(1, 9_000), min_size=1
)


@given(sizes, st.integers(1, 4), st.integers(1, 3_000))
def test_every_brokers_share_is_cut_into_few_pieces_of_one_size(
    wanted: dict[tuple[str, int], int], connections: int, at_least: int
) -> None:
    tasks = pack(wanted, at_least, connections)
    pieces = [piece for task in tasks for piece in task]
    assert all(tasks)
    for (cluster, broker), size in wanted.items():
        theirs = [one for one in pieces if (one.cluster, one.broker) == (cluster, broker)]
        assert sorted(one.part for one in theirs) == list(range(theirs[0].parts))
        assert 1 <= len(theirs) <= connections
        ranges = [share(size, one.part, one.parts) for one in sorted(theirs)]
        assert [n for some in ranges for n in some] == list(range(size))
        assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    assert len(pieces) == sum(1 for _ in {(one.cluster, one.broker, one.part) for one in pieces})
    assert task_of(tasks) == {piece: n for n, task in enumerate(tasks) for piece in task}


@given(sizes, st.integers(1, 3))
def test_a_task_with_several_pieces_has_no_more_than_is_worth_one(
    wanted: dict[tuple[str, int], int], connections: int
) -> None:
    tasks = pack(wanted, 2_000, connections)
    assert all(sum(one.size for one in task) <= 2_000 for task in tasks if len(task) > 1)
    assert sum(sum(one.size for one in task) <= 1_000 for task in tasks) <= 1, "two half empty ones would be one"


def test_fifty_clusters_of_twelve_brokers_are_as_many_tasks_of_one_size() -> None:
    """Hashed into 600 tasks, the fullest would serve five leaders."""
    tasks = pack({(f"c{n}", broker): 16_667 for n in range(50) for broker in range(12)}, 2_000, 2)
    assert len(tasks) == 1_200
    assert {sum(one.size for one in task) for task in tasks} == {8_333, 8_334}
    assert set(Counter((one.cluster, one.broker) for task in tasks for one in task).values()) == {2}


def test_each_task_has_a_key_of_its_own() -> None:
    """That Spark's hash follows them: tests/spark/test_shuffles.py."""
    for count in (1, 2, 3, 600):
        assert len(set(keys(count).tolist())) == count
