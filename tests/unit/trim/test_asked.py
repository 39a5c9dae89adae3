"""What a trim is asked for, and which limits that exceeds (G6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kretain.errors import UsageError
from kretain.options.rules import topic_arguments
from kretain.render.trim import question
from retention_cli.core.model import Decision
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.value import Totals
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import Limits
from retention_cli.trim.narrow import asked_for, exceeded, of_partitions
from tests.support.plans import EVERY, row
from tests.support.plans import plan as made

GOING = [one for one in EVERY.decisions if one.action == "trim"]


def test_max_partitions_selects_the_first_trims() -> None:
    assert asked_for(EVERY, None) is EVERY
    first = asked_for(EVERY, 1)
    assert list(first.decisions) == GOING[:1]
    assert first.totals.records == GOING[0].records
    assert asked_for(EVERY, 1_000).totals.trim == len(GOING)


@pytest.mark.parametrize(
    ("limits", "past", "codes"),
    [
        (Limits(), Amount(), []),
        (Limits(max_records=GOING[0].records), Amount(), []),
        (Limits(max_records=GOING[0].records), Amount(1, 1), ["G6"]),
        (Limits(max_records=GOING[0].records - 1), Amount(), ["G6"]),
        (Limits(max_percent=100), Amount(), []),
        (Limits(max_percent=0.001), Amount(), ["G6"]),
    ],
)
def test_limits_apply_to_the_selected_partitions(limits: Limits, past: Amount, codes: list[str]) -> None:
    assert [one.code for one in exceeded(EVERY, asked_for(EVERY, 1), past, limits)] == codes


def test_confirmation_names_records_topics_and_unread_groups() -> None:
    text = question(asked_for(EVERY, 1))
    assert f"from 1 partition of {GOING[0].topic} in cluster {EVERY.cluster_id} ({EVERY.bootstrap})?" in text
    assert text.endswith("This can't be undone.")
    assert ("NOT been read by" in text) == bool(GOING[0].unconsumed)


def wanting(*given: str, limits: Limits = Limits()) -> Selection:  # noqa: B008  (a frozen value)
    named = topic_arguments(list(given))
    return Selection(Policy("p.yaml", "sha256:x", limits=limits), tuple(named.topics or ()), named.partitions)


ROWS = st.builds(
    lambda topic, partition, action, records: row(
        topic=topic,
        partition=partition,
        action=action,
        trim_to=records if action == "trim" else None,
        records=records if action == "trim" else 0,
        size_bytes=0,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 4),
    st.sampled_from(["trim", "keep", "hold", "skip"]),
    st.integers(1, 9),
)


@given(
    st.lists(ROWS, unique_by=lambda one: one.tp, min_size=1),
    st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), min_size=1),
    st.sets(st.sampled_from(["b", "c", "[ac]"])),
)
def test_filtered_plan_never_trims_more(
    rows: list[Decision], partitions: set[tuple[str, int]], whole: set[str]
) -> None:
    plan = made(*sorted(rows, key=lambda one: one.tp))
    given_ = [*sorted(whole), *(f"{topic}:{number}" for topic, number in sorted(partitions))]
    selection = wanting(*given_)

    if not selection.partitions:
        assert of_partitions(plan, selection, Amount) is plan
        return

    def is_asked(one: Decision) -> bool:
        by_name = one.topic in whole or ("[ac]" in whole and one.topic in "ac")
        return by_name or (one.topic, one.partition) in partitions

    try:
        narrow = of_partitions(plan, selection, Amount)
    except NothingMatchesError:
        missing = {one for one in partitions if one[0] not in whole} - {tuple(one.tp) for one in rows}
        assert missing
        return
    assert list(narrow.decisions) == [one for one in plan.decisions if is_asked(one)]
    assert narrow.totals == Totals.of(narrow.decisions)
    assert set(narrow.decisions) <= set(plan.decisions)
    assert all(selection.asks_for(one.tp) == is_asked(one) for one in rows)
    in_part = {one.topic for one in rows if not is_asked(one)} & {topic for topic, _number in partitions}
    assert in_part <= selection.parted.keys() <= {topic for topic, _number in partitions}
    assert selection.settings_for("a") == wanting(*(selection.topics)).settings_for("a"), "topics are decided whole"


@pytest.mark.parametrize(
    ("given_", "topics", "told"),
    [
        (("a:0",), ("a:0",), {"group:g": 9, "group:h": 4}),  # made for these: whoever made it counted all groups
        (("a:0",), (), {"group:g": 7}),  # narrowed later: of a row only its slowest group is known
        (("a",), (), {"group:g": 9, "group:h": 4}),
    ],
)
def test_unread_counts_include_only_the_filtered_partitions(
    given_: tuple[str, ...], topics: tuple[str, ...], told: dict[str, int]
) -> None:
    rows = [row(topic="a", partition=n, unconsumed=7, min_commit_by="group:g") for n in (0, 1)]
    plan = replace(made(*rows), topics=topics, unconsumed_by={"group:g": 9, "group:h": 4})
    assert of_partitions(plan, wanting(*given_), Amount).unconsumed_by == told


def test_missing_partition_of_the_filter_is_named() -> None:
    assert of_partitions(EVERY, wanting("*"), Amount) is EVERY
    topic = EVERY.decisions[0].topic
    with pytest.raises(NothingMatchesError, match=f"{topic} has no partition 9 here: it has 0 to 4"):
        of_partitions(EVERY, wanting(f"{topic}:9"), Amount)
    with pytest.raises(NothingMatchesError, match="the plan has none of its partitions"):
        of_partitions(EVERY, wanting("other:0"), Amount)


def test_limits_apply_to_named_partitions() -> None:
    topic, most = EVERY.decisions[0].topic, Limits(max_records=GOING[0].records)
    assert exceeded(EVERY, EVERY, Amount(), most)
    assert not of_partitions(EVERY, wanting(f"{topic}:0", limits=most), Amount).refusals
    assert of_partitions(EVERY, wanting(f"{topic}:0", limits=most), lambda: Amount(1, 1)).refusals


@pytest.mark.parametrize(
    ("given_", "topics", "again"),
    [
        (["a:1", "b", "a:0"], ("a", "b"), ("a:0", "a:1", "b")),
        (["a:1", "a"], ("a",), ("a",)),
        (["re:^a:1$", "*"], ("re:^a:1$", "*"), ("re:^a:1$", "*")),
    ],
)
def test_partition_arguments_are_kept_as_given(
    given_: list[str], topics: tuple[str, ...], again: tuple[str, ...]
) -> None:
    selection = wanting(*given_)
    assert selection.topics == topics
    assert selection.given == again
    assert wanting(*again) == selection


@pytest.mark.parametrize("text", ["a:", "a:x", "a:-1", "a:1:2", "a:²", "*:1", ":1", "a:" + "1" * 5000])
def test_invalid_partition_argument_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a partition's number|of one topic"):
        topic_arguments([text])


def test_partition_filter_needs_one_cluster() -> None:
    topic_arguments(["a"]).check_one_cluster()
    with pytest.raises(UsageError, match="for one cluster"):
        topic_arguments(["a:1"]).check_one_cluster()
