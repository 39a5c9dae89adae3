"""Strategies for what groups have committed, and the logs behind it."""

from __future__ import annotations

from hypothesis import strategies as st

from retention_cli.memory.interface import LogNow

TOPICS = ("a", "b", "c")


EPOCHS = st.sampled_from([None, 0, 1, 2])


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), EPOCHS), max_size=3, unique_by=lambda row: row[0])


COMMITS = st.dictionaries(st.sampled_from(TOPICS), ROWS, max_size=3)


IDS = st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(["x", "x", "x", "y"]), max_size=3)


LOG = st.builds(
    LogNow,
    high_watermark=st.integers(0, 5),
    leader_epoch=st.integers(0, 2),
    unknown_epochs=st.sampled_from([frozenset(), frozenset({1})]),
    unasked_epochs=st.sampled_from([frozenset(), frozenset(), frozenset({2})]),
    cut=st.sampled_from([None, None, 2]),
    last_epoch=st.sampled_from([None, 0]),
)
