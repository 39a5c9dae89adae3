"""A file's problems, all at once and bounded; and entries that match nothing, with what was perhaps meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kretain import errors as exits
from retention_cli.policy.errors import MOST_REPORTED, PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import NothingMatchesError, Selection, check_matches, groups_not_there, nearest
from tests.support.client_files import jks_store
from tests.support.says import raised, refusal

SECRET = "hunter2"


def lines(text: str) -> list[str]:
    return raised(PolicyError, parse_policy, text, "p.yaml", "").lines


def test_every_problem_is_listed_in_file_order() -> None:
    text = """\
version: 2
groups: {ignore: ["re:(", good, 7], colour: red}
disks:
  capacity:
    data: 1GiB
    /data: much
floors:
  - file: a.json
topics:
  - match: [a, "re:[", ""]
    retention.ms: soon
    retention.commitoffset.enable: true
  - match:
  - x
"""
    found = lines(text)
    assert [one.split(": ")[0] + " " + one.split(": ")[1] for one in found] == [
        "p.yaml:1 version",
        "p.yaml:2 colour",
        "p.yaml:2 ignore",
        "p.yaml:5 capacity",
        "p.yaml:6 capacity",
        "p.yaml:8 floors",
        "p.yaml:10 match",
        "p.yaml:11 retention.ms",
        "p.yaml:12 retention.commitoffset.enable",
        "p.yaml:13 match",
        "p.yaml:14 topics",
    ]
    assert not any("Value error" in one or "Input should" in one for one in found)


@pytest.mark.parametrize(
    ("scope", "required", "wrong"),
    [
        ("team-a.*", "", "needs groups.require"),
        ("team-a.*", ", groups.require: [team-a.x]", None),
        ("'*'", ", groups.require: ['']", None),
        ("team-a", ", groups.require: [x]", "'team-a' is not a prefix"),
        ("team-?.*", ", groups.require: [x]", "'team-?.*' is not a prefix"),
        ("re:team*", ", groups.require: [x]", "'re:team*' is not a prefix"),
    ],
)
def test_scope_is_a_prefix_and_needs_required_groups(scope: str, required: str, wrong: str | None) -> None:
    text = f"version: 1\ngroups: {{scope: {scope}}}\ntopics: [{{match: t{required}}}]\n"
    if wrong is None:
        assert parse_policy(text, "p.yaml", "").groups.scope == scope.strip("'")[:-1]
    else:
        assert [(line[:10], wrong in line) for line in lines(text)] == [("p.yaml:2: ", True)]


def test_start_of_a_group_is_a_duration() -> None:
    text = "version: 1\ngroups:\n  start: {daily: 1d, '*': 90m}\ntopics: [{match: t}]\n"
    assert (
        dict(parse_policy(text, "p.yaml", "").groups.start),
        [(line[:10], "soon" in line) for line in lines(text.replace("90m", "soon"))],
    ) == ({"daily": 86_400_000, "*": 5_400_000}, [("p.yaml:3: ", True)])


def test_each_invalid_pattern_of_a_list_has_its_line() -> None:
    assert [
        one[:8] for one in lines('version: 1\ntopics:\n  - match:\n      - a\n      - "re:["\n      - "re:("\n')
    ] == ["p.yaml:5", "p.yaml:6"]


def test_many_problems_are_truncated_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    text = "version: 1\ntopics:\n" + "".join(f"  - {{match: t, k{n}: 1}}\n" for n in range(MOST_REPORTED + 3))
    error = raised(PolicyError, parse_policy, text, "p.yaml", "")
    exits.report(error, 0)
    said = capsys.readouterr().err.splitlines()
    assert (len(error.problems), len(said)) == (MOST_REPORTED + 3, MOST_REPORTED + 1)
    assert said[0].startswith("kretain: p.yaml:3: k0: is not a key here")
    assert said[-1] == "kretain: p.yaml: … and 3 more problems: fix these first"


MISTAKES: dict[str, str | bytes] = {
    "passwd": f"root:x:0:0:{SECRET}:/root:/bin/bash\ndaemon:x:1:1:{SECRET}:/usr/sbin:/bin/sh\n" * 40,
    "a text": f"Call me {SECRET}. Some years ago: never mind how long.\n" * 20_000,
    "csv": f"name,password\nalice,{SECRET}\n" * 1000,
    "properties": f"sasl.password={SECRET}\nsecurity.protocol=SSL\n",
    "properties with colons": "".join(f"{SECRET}.{n}: {SECRET}\n" for n in range(5000)),
    "a log": f"2026-11-01T00:00:00Z ERROR {SECRET} [x] {{y}}\n" * 1000,
    "pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "json": json.dumps({"users": [{"name": SECRET}] * 50}, indent=1),
    "a list": f"- {SECRET}\n" * 1000,
    "shell": f"#!/bin/sh\nexport PASSWORD='{SECRET}'\nif [ -z \"$1\" ]; then echo `id`; fi\n",
    "binary": b"\x7fELF\x02\x01\x01" + b"\0" * 50 + SECRET.encode() + bytes(range(256)) * 100,
    "nul": b"\0" * 5000,
    "store": jks_store("changeit", key=True, key_password="changeit"),
    "empty": "",
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize(
    ("load", "kind", "most"), [(load_policy, PolicyError, 1), (load_fleet, FleetFileError, MOST_REPORTED + 1)]
)
def test_file_of_another_kind_fails_in_few_short_lines_without_its_content(
    tmp_path: Path, name: str, load: Callable[[Path], object], kind: type[PolicyError | FleetFileError], most: int
) -> None:
    path, content = tmp_path / "given", MISTAKES[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = raised(kind, load, path)
    assert len(error.lines) <= most
    assert max(map(len, error.lines)) < 300
    assert load is load_fleet or SECRET not in str(error)


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


MANY = [f"team-{number % 97}.service-{number}.events" for number in range(20_000)]


@pytest.mark.parametrize(
    ("patterns", "names", "name"),
    [
        pytest.param(["clocks", "flihts"], TOPICS, "flights", id="the most similar pattern"),
        pytest.param(["zzzzzzzz", "payments-eux"], TOPICS, "payments-eu", id="the most similar name"),
        pytest.param(["flight"], (), None, id="no names"),
        pytest.param(["team-7.servcie-104.events"], MANY, "team-7.service-104.events", id="among many names"),
    ],
)
def test_most_similar_pattern_or_name_is_suggested(patterns: list[str], names: Sequence[str], name: str | None) -> None:
    assert nearest(patterns, names) == name


@given(st.text(max_size=300), st.sets(st.text("abc.-_", min_size=1), max_size=8))
def test_any_pattern_gives_a_name_or_none(pattern: str, names: set[str]) -> None:
    assert nearest([pattern, f"re:{pattern}"], names) in {*names, None}


def unmatched(one: Policy) -> NothingMatchesError:
    return raised(NothingMatchesError, check_matches, Selection(one), TOPICS)


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
    error = unmatched(one)
    assert list(error.problems) == expected
    assert str(error) == "; ".join(expected), "a fleet has one line a cluster"
    exits.report(error, 0)
    assert capsys.readouterr().err == "".join(f"kretain: {line}\n" for line in expected)


@pytest.mark.parametrize(
    ("count", "rest"), [(6, "1 more entry matches no topic"), (1_000, "995 more entries match no topic")]
)
def test_five_of_many_entries_are_named(count: int, rest: str) -> None:
    assert list(unmatched(policy(*(f"x{number}" for number in range(count)))).problems[4:]) == [
        "prod.yaml:11: match x4 matches no topic",
        f"prod.yaml: {rest}",
    ]


def test_shown_entry_is_short_and_printable() -> None:
    names = ", ".join(f"x{number}" for number in range(50))
    first, second, third = unmatched(policy(f"[{names}]", '"\\e[2J\\u202e"', "y" * 10_000)).problems
    assert (first, second) == (
        "prod.yaml:3: match x0, x1, x2 and 47 more matches no topic",
        "prod.yaml:5: match '\\x1b[2J\\u202e' matches no topic",
    )
    assert len(third) < 140


def test_single_entry_matching_nothing_is_a_note() -> None:
    assert [(note.code, note.text) for note in check_matches(Selection(policy("flights", '"ordrs.*"')), TOPICS)] == [
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
    assert refusal(NothingMatchesError, check_matches, Selection(policy("flights"), (topic,)), TOPICS) == said


def test_missing_groups_are_named_with_a_near_one() -> None:
    text = (
        "version: 1\ngroups: {require: [billing, audti], ignore: ['tmp-*', 'console-*'], latest: [nightly]}\n"
        "topics:\n  - match: orders\n    retention.ms: 7d\n    groups.require: [biling]\n"
    )
    assert groups_not_there(parse_policy(text, "p.yaml", "sha256:x"), {"billing", "audit", "console-1"}) == [
        "groups.require: no group audti; did you mean audit?",
        "groups.require: no group biling; did you mean billing?",
        "groups.ignore: no group tmp-*",
        "groups.latest: no group nightly",
    ]
    assert groups_not_there(policy("orders"), set()) == [], "what is ignored unless the policy says otherwise"
