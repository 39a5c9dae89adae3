"""What the policy topic's messages come to, and editing them (DESIGN.md, The policy file)."""

from __future__ import annotations

import json

import pytest

from retention_cli.policy.live import LiveValueError, Message, check_value, live_settings
from retention_cli.policy.live_edit import LiveEditError, checked, in_force, laid_over, said, without
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Settings

POLICY = parse_policy(
    """
version: 1
topics:
  - match: journal
    log.retention.min.timestamp: cluster
    retention.ms: cluster
    unconsumed: trim
  - match: other
    retention.ms: 7d
""",
    "policy.yaml",
    "sha256:test",
)
M = "log.retention.min.timestamp"


def messages(*values: object, topic: str = "journal", first: int = 0) -> list[Message]:
    """Return a message per value: an object, raw bytes, or None for a tombstone."""
    raw = [one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in values]
    return [Message(0, offset, topic.encode(), one) for offset, one in enumerate(raw, first)]


def values(*said_so_far: object) -> dict[str, object]:
    live = live_settings(POLICY, messages(*said_so_far)).values.get("journal", {})
    return {key: origin.value for key, origin in live.items()}


def notes(*said_so_far: object) -> list[str]:
    return [note.text for note in live_settings(POLICY, messages(*said_so_far)).notes]


def held(*said_so_far: object) -> bool:
    return "journal" in live_settings(POLICY, messages(*said_so_far)).unsettled


def test_the_last_message_replaces_what_was_said_before() -> None:
    assert values({M: 5, "retention.ms": "7d"}, {M: 9}) == {M: 9}
    assert values({M: 5}, None) == {}
    assert values({M: 5}, None, {M: "1970-01-01T00:00:00.009Z"}) == {M: 9}
    live = live_settings(POLICY, messages({M: 5}, {M: 9}))
    assert live.values["journal"][M].place == "_kretain_policy-0 offset 1"


@pytest.mark.parametrize("nonsense", [b"", b"{", b"[1]", b"\xff", b'{"%s": 1, "%s": 2}' % (M.encode(), M.encode())])
def test_a_message_that_cannot_be_read_leaves_what_was_in_force(nonsense: bytes) -> None:
    assert values({M: 5}, nonsense) == {M: 5}
    assert not held({M: 5}, nonsense)
    assert [text.startswith("_kretain_policy-0 offset 1, for topic journal: ") for text in notes({M: 5}, nonsense)] == [
        True
    ]


def test_a_wrong_value_is_ignored_for_that_key_alone() -> None:
    assert values({M: 5, "retention.ms": 1}, {M: "soon", "retention.ms": 2}) == {M: 5, "retention.ms": 2}
    assert not held({M: 5}, {M: "soon", "retention.ms": 2})


def test_where_nonsense_is_the_only_word_the_topic_is_held() -> None:
    assert held(b"nonsense")
    assert held({M: "soon"})
    assert held({M: 5}, None, {M: "soon"})
    assert held({"retention.ms": 5}, {M: "soon", "retention.ms": 6}), "of this key nothing else was ever said"
    assert not held(b"nonsense", {M: 5})
    assert not held({M: "soon"}, None)


def test_what_the_file_does_not_mark_is_ignored_and_named() -> None:
    assert values({M: 5, "unconsumed": "hold"}) == {M: 5}
    told = "_kretain_policy-0 offset 0, for topic journal: the policy file does not mark unconsumed as cluster for it"
    assert notes({M: 5, "unconsumed": "hold"}) == [f"{told}; ignored"]
    assert live_settings(POLICY, messages({"retention.ms": 5}, topic="other")).values["other"] == {}


def test_what_was_set_right_is_not_complained_about_any_more() -> None:
    assert notes(b"nonsense", {M: "soon"}, {M: 5}) == []
    assert notes(b"nonsense", None) == []
    assert len(notes({M: 5}, b"nonsense", b"more nonsense")) == 2


def test_a_key_that_names_no_topic_is_named_and_ignored() -> None:
    for key in (None, b"", b"\xff"):
        live = live_settings(POLICY, [Message(0, 3, key, b"{}")])
        assert [note.text for note in live.notes] == ["_kretain_policy-0 offset 3: its key is no topic's name; ignored"]


@pytest.mark.parametrize(("key", "value"), [("hold", "x"), ("match", "x"), (M, None), (M, -1), ("unconsumed", "maybe")])
def test_what_may_not_be_said_there(key: str, value: object) -> None:
    with pytest.raises(LiveValueError):
        check_value(key, value)


# -- editing -----------------------------------------------------------------------------


def test_what_is_in_force_comes_back_as_it_was_written() -> None:
    """An hour of R1 is 1, not 3,600,000: it is read by the same key again."""
    told = messages({M: "1970-01-01T00:00:00.005Z", "retention.ms": "7d"}, {M: "soon", "retention.ms": "8d"})
    assert in_force(told, POLICY, "journal") == {M: "1970-01-01T00:00:00.005Z", "retention.ms": "8d"}
    other = messages({"retention.commitoffset.hours": 3}, topic="other")
    assert in_force(other, None, "other") == {"retention.commitoffset.hours": 3}
    assert in_force(other, POLICY, "other") == {"retention.commitoffset.hours": 3}, "others' words are not ours to drop"
    assert in_force(told, POLICY, "nothing") == {}


def test_of_one_time_with_three_names_the_last_set_stays() -> None:
    before = {"retention.commitoffset.ms": 5, "retention.ms": 1}
    assert laid_over(before, {"retention.commitoffset.hours": 2}) == {
        "retention.ms": 1,
        "retention.commitoffset.hours": 2,
    }
    assert laid_over(before, {"retention.ms": 2}) == {"retention.commitoffset.ms": 5, "retention.ms": 2}


def test_taking_back() -> None:
    assert without({M: 5, "retention.ms": 1}, "journal", [M]) == {"retention.ms": 1}
    assert without({M: 5}, "journal", []) == {}
    with pytest.raises(
        LiveEditError, match=r"unconsumed is not set for topic journal in the policy topic; it has log\."
    ):
        without({M: 5}, "journal", ["unconsumed"])


def test_everything_that_is_wrong_is_named_at_once() -> None:
    checked(POLICY, "journal", {M: 5, "retention.ms": "7d"})
    with pytest.raises(LiveEditError) as refused:
        checked(POLICY, "journal", {M: "soon", "hold": "x", "unconsumed": "hold"})
    assert str(refused.value).count(";") == 4
    with pytest.raises(LiveEditError, match=r"policy.yaml:9 sets retention.ms itself for topic other"):
        checked(POLICY, "other", {"retention.ms": 5})
    with pytest.raises(LiveEditError, match=r"no entry of policy.yaml matches topic nowhere"):
        checked(POLICY, "nowhere", {"retention.ms": 5})


def test_the_list_has_what_counts_and_what_does_not() -> None:
    told = [*messages({M: 5, "unconsumed": "hold"}), *messages({"retention.ms": 5}, topic="other", first=1)]
    rows = [(one.topic, one.key, one.value, one.counts) for one in said(told, POLICY).rows]
    assert rows == [
        ("journal", M, 5, True),
        ("journal", "unconsumed", "hold", False),
        ("other", "retention.ms", 5, False),
    ]
    assert {one.counts for one in said(told, None).rows} == {None}


def test_a_guard_that_lives_in_the_cluster_and_was_never_set_holds() -> None:
    """Unknown means hold: a wall clock guard that nobody has set yet is not one that is off (RULES.md G3)."""
    policy = parse_policy(
        "version: 1\ntopics: [{match: journal, retention.ms: 1d, retention.min.wallclock.ms: cluster}]",
        "policy.yaml",
        "sha256:test",
    )

    def settings(*said_so_far: object) -> Settings | None:
        return policy.with_live(live_settings(policy, messages(*said_so_far))).settings_for("journal")

    unset, off, set_ = (
        settings(),
        settings({"retention.min.wallclock.ms": 0}),
        settings({"retention.min.wallclock.ms": "2h"}),
    )
    assert unset is not None
    assert unset.unsettled is not None
    assert off is not None
    assert off.unsettled is None
    assert off.min_wallclock_ms == 0
    assert set_ is not None
    assert set_.min_wallclock_ms == 7_200_000
