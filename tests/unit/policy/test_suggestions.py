"""Entries that match nothing: each is named with its line, and with the topic that was perhaps meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kretain import errors as exits
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import NothingMatchesError, Selection, check_matches
from retention_cli.policy.suggestions import groups_not_there, nearest

TOPICS = ("clicks", "flights", "orders.eu.created", "orders.us.created", "payments-eu", "payments-us", "__near")


def policy(*patterns: str) -> Policy:
    """Return a policy of an entry per pattern, whose patterns stand in lines 3, 5 and so on."""
    entries = "".join(f"  - match: {one}\n    retention.ms: 7d\n" for one in patterns)
    return parse_policy(f"version: 1\ntopics:\n{entries}", "prod.yaml", "sha256:x")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("flihgts", "flights"),
        ("FLIGHTS", "flights"),
        ("orders.eu.create", "orders.eu.created"),
        ("ordrs.*", "orders.eu.created"),
        ("order-*", "orders.eu.created"),
        ("*-created", "orders.eu.created"),
        ("paymenst-*us", "payments-us"),
        ("click?s", "clicks"),
        ("re:^paymnets-.*$", "payments-eu"),
        ("re:orders\\.us\\.creatd", "orders.us.created"),
        ("re:(clicks|flights)s", None),
        ("*", None),
        ("???", None),
        ("re:", None),
        ("_near", None),
        ("zzzzzzzz", None),
        ("zzzzzzzz-*", None),
    ],
)
def test_near_name_is_suggested(pattern: str, name: str | None) -> None:
    """Of a glob its literal part is compared, with as much of a name."""
    assert nearest([pattern], TOPICS) == name


def test_most_similar_pattern_or_name_is_suggested() -> None:
    assert nearest(["clocks", "flihts"], TOPICS) == "flights"
    assert nearest(["zzzzzzzz", "payments-eux"], TOPICS) == "payments-eu"
    assert nearest(["flight"], ()) is None


def test_typo_among_many_names_is_found() -> None:
    names = [f"team-{number % 97}.service-{number}.events" for number in range(20_000)]
    assert nearest(["team-7.servcie-104.events"], names) == "team-7.service-104.events"


@given(st.text(max_size=300), st.sets(st.text("abc.-_", min_size=1), max_size=8))
def test_any_pattern_gives_a_name_or_none(pattern: str, names: set[str]) -> None:
    assert nearest([pattern, f"re:{pattern}"], names) in {*names, None}


def lines(one: Policy, names: tuple[str, ...] = TOPICS) -> list[str]:
    with pytest.raises(NothingMatchesError) as error:
        check_matches(Selection(one), names)
    return list(error.value.problems)


def test_policy_matching_nothing_names_each_entry_with_a_near_topic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = policy('"ordrs.*"', "flihgts", "[zzzzzzzz, clocks]", '"re:^x{9}$"')
    expected = [
        "prod.yaml:3: match ordrs.* matches no topic; did you mean orders.eu.created?",
        "prod.yaml:5: match flihgts matches no topic; did you mean flights?",
        "prod.yaml:7: match zzzzzzzz, clocks matches no topic; did you mean clicks?",
        "prod.yaml:9: match re:^x{9}$ matches no topic",
    ]
    assert lines(one) == expected
    with pytest.raises(NothingMatchesError) as error:
        check_matches(Selection(one), TOPICS)
    assert str(error.value) == "; ".join(expected), "a fleet has one line a cluster"
    exits.report(error.value, 0)
    assert capsys.readouterr().err == "".join(f"kretain: {line}\n" for line in expected)


def test_five_of_many_entries_are_named() -> None:
    found = lines(policy(*(f"x{number}" for number in range(6))))
    assert found[4:] == ["prod.yaml:11: match x4 matches no topic", "prod.yaml: 1 more entry matches no topic"]
    found = lines(policy(*(f"x{number}" for number in range(1_000))))
    assert len(found) == 6
    assert found[5] == "prod.yaml: 995 more entries match no topic"


def test_shown_entry_is_short_and_printable() -> None:
    names = ", ".join(f"x{number}" for number in range(50))
    found = lines(policy(f"[{names}]", '"\\e[2J\\u202e"', "y" * 10_000))
    assert found[0] == "prod.yaml:3: match x0, x1, x2 and 47 more matches no topic"
    assert found[1] == "prod.yaml:5: match '\\x1b[2J\\u202e' matches no topic"
    assert len(found[2]) < 140


def test_single_entry_matching_nothing_is_a_note() -> None:
    notes = check_matches(Selection(policy("flights", '"ordrs.*"')), TOPICS)
    assert [(note.code, note.text) for note in notes] == [
        ("policy", "prod.yaml:5: match ordrs.* matches no topic; did you mean orders.eu.created?")
    ]


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("flihgts", "no topic matches 'flihgts'; did you mean flights?"),
        ("ordrs.*", "no topic matches 'ordrs.*'; did you mean orders.eu.created?"),
        ("zzzzzzzz", "no topic matches 'zzzzzzzz' (or this user lacks DESCRIBE on it)"),
        ("clicks", "prod.yaml: no entry matches clicks"),
    ],
)
def test_topic_argument_matching_nothing_suggests_a_name(topic: str, said: str) -> None:
    with pytest.raises(NothingMatchesError) as error:
        check_matches(Selection(policy("flights"), (topic,)), TOPICS)
    assert str(error.value) == said


def test_missing_groups_are_named_with_a_near_one() -> None:
    text = (
        "version: 1\ngroups: {require: [billing, audti], ignore: ['tmp-*', 'console-*'], latest: [nightly]}\n"
        "topics:\n  - match: orders\n    retention.ms: 7d\n    groups.require: [biling]\n"
    )
    found = groups_not_there(parse_policy(text, "p.yaml", "sha256:x"), {"billing", "audit", "console-1"})
    assert found == [
        "groups.require: there is no group audti; did you mean audit?",
        "groups.require: there is no group biling; did you mean billing?",
        "groups.ignore: there is no group tmp-*",
        "groups.latest: there is no group nightly",
    ]
    assert groups_not_there(policy("orders"), set()) == [], "what is ignored unless the policy says otherwise"
