"""The policy file: names, units, precedence, and errors that name the place and the way out (docs/rules.md, docs/policy.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, strategies as st

from kretain import errors as exits
from kretain.commands.archive import archive_url, in_policy, split
from kretain.config import Resolved, resolve
from kretain.errors import UsageError
from kretain.options.common import Common
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import TopicConfig
from retention_cli.policy.errors import MOST_REPORTED, PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.model import LiveSettings, Policy, matches
from retention_cli.policy.schema import json_schema
from retention_cli.policy.schema_reports import StrictModel
from retention_cli.policy.selection import NothingMatchesError, Selection, check_matches, groups_not_there, nearest
from retention_cli.policy.settings import AuditRules, FloorSource, OneOff, Origin, Settings, UntilConsumed
from retention_cli.policy.urls import check_url
from retention_cli.policy.values import read_patterns, read_topic_patterns
from retention_cli.reports.policy_check import check_against, check_alone
from tests.support.client_files import jks_store
from tests.support.facts import HOUR, known, policy
from tests.support.says import raised, refusal

DAY = 24 * HOUR


def entries(*lines: str) -> str:
    return "version: 1\ntopics:\n" + "".join(f"  - {{{line}}}\n" for line in lines)


def problems(text: str) -> list[str]:
    return [str(problem) for problem in raised(PolicyError, policy, text).problems]


@pytest.mark.parametrize(
    ("keys", "ms"),
    [
        ("retention.commitoffset.ms: 5", 5),
        ("retention.commitoffset.minutes: 5", 5 * 60_000),
        ("retention.commitoffset.hours: 72", 3 * DAY),
        ('retention.commitoffset.hours: "3d"', 3 * DAY),
        ("retention.commitoffset.ms: 12h", 12 * HOUR),
        ("retention.commitoffset.ms: 1.5h", 90 * 60_000),
        ("retention.commitoffset.minutes: 90s", 90_000),
        ("retention.commitoffset.ms: 2w", 14 * DAY),
        ("retention.commitoffset.ms: 0", 0),
        # in one entry the finer unit wins
        ("retention.commitoffset.hours: 72, retention.commitoffset.minutes: 1", 60_000),
        ("retention.commitoffset.minutes: 1, retention.commitoffset.ms: 7, retention.commitoffset.hours: 1", 7),
    ],
)
def test_r1_time_accepts_every_spelling(keys: str, ms: int) -> None:
    assert policy(entries(f"match: t, retention.commitoffset.enable: true, {keys}")).settings_for("t") == Settings(
        consumed_after_ms=ms, named_in_full=True
    )


R1_OFF = entries(
    'match: "*", retention.commitoffset.enable: true, retention.commitoffset.hours: 1',
    "match: t, retention.commitoffset.enable: false",
)
SPELLINGS = entries(
    'match: "*", retention.commitoffset.enable: true, retention.commitoffset.ms: 5',
    'match: "orders.*", retention.commitoffset.hours: 2',
)
ARCHIVES = 'version: 1\ntopics:\n  - {match: "*", retention.ms: 1d, archive: /a}\n  - {match: t, archive: none}\n'


@pytest.mark.parametrize(
    ("text", "topic", "name", "value"),
    [
        pytest.param(SPELLINGS, "orders.eu", "consumed_after_ms", 2 * HOUR, id="a later spelling of the time"),
        pytest.param(SPELLINGS, "payments", "consumed_after_ms", 5, id="a spelling of another entry"),
        pytest.param(entries("match: t, retention.commitoffset.hours: 1"), "t", "consumed_after_ms", None, id="R1 off"),
        pytest.param(R1_OFF, "t", "consumed_after_ms", None, id="R1 turned off"),
        pytest.param(R1_OFF, "u", "consumed_after_ms", HOUR, id="R1 on"),
        # Kafka's word for off: as a number of milliseconds it would lie in the future, and everything be older
        pytest.param(entries("match: t, retention.ms: -1"), "t", "forced_age_ms", None, id="-1"),
        pytest.param(
            entries('match: "*", retention.ms: 1d', "match: t, retention.ms: -1"), "t", "forced_age_ms", None, id="off"
        ),
        pytest.param(
            'version: 1\ntopics:\n  - &base {match: "*", retention.ms: 7d}\n  - <<: *base\n    match: orders\n',
            *("orders", "forced_age_ms", 7 * DAY),
            id="a merge key and an anchor",
        ),
        *(
            pytest.param(entries(f"match: t, {keys}"), "t", "until_consumed", UntilConsumed(("x",), 3 * DAY), id=keys)
            for keys in (
                "retention.until.consumed: {max: 3d}, groups.require: x",
                "retention.until.consumed: {max: 3d, groups: x}",
            )
        ),
        pytest.param(ARCHIVES, "t", "archive", None, id="a later entry turns archiving off"),
        pytest.param(ARCHIVES, "u", "archive", "/a", id="archiving on"),
        pytest.param(entries("match: _schemas"), "_schemas", "named_in_full", True, id="a name in full"),
        pytest.param(entries('match: "_*"'), "_schemas", "named_in_full", False, id="a glob"),
        pytest.param(entries('match: "re:_schemas"'), "_schemas", "named_in_full", False, id="a regular expression"),
        pytest.param(entries('match: ["x", _schemas]'), "_schemas", "named_in_full", True, id="a name in a list"),
    ],
)
def test_setting_of_a_topic_is_that_of_its_last_entry(text: str, topic: str, name: str, value: object) -> None:
    assert getattr(policy(text).settings_for(topic), name) == value


def test_top_level_keys_have_their_values_and_defaults() -> None:
    assert policy(entries("match: t")).groups.ignore == ("console-consumer-*",)
    given = policy("audit: {max.bytes: 1MiB, topic: ops}\ngroups: {start: {a: 1d, '*': 90m}}\n" + entries("match: t"))
    assert (given.audit, given.groups.start) == (AuditRules(1 << 20, "ops"), (("a", DAY), ("*", 5_400_000)))


def test_later_entries_override_by_key_and_values_keep_their_line() -> None:
    text = """version: 1
groups: {require: [a]}
topics:
  - match: "*"
    retention.ms: 7d
    unconsumed: trim
  - match: [orders, payments]
    retention.ms: 1d
    groups.require: [b, a]
"""
    loaded = policy(text)
    assert (loaded.settings_for("orders"), loaded.settings_for("x")) == (
        Settings(forced_age_ms=DAY, unconsumed="trim", named_in_full=True, require_groups=("a", "b")),
        Settings(forced_age_ms=7 * DAY, unconsumed="trim", require_groups=("a",)),
    )
    assert [loaded.origins("orders")[key].place for key in ("retention.ms", "unconsumed")] == [
        "kretain.yaml:8",
        "kretain.yaml:6",
    ]


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("*", "anything", True),
        ("o?ders", "orders", True),
        ("[op]*", "payments", True),
        ("re:^orders-\\d+$", "orders-12", True),
        ("re:orders", "my-orders-2", False),
        ("re:orders", "orders-2", False),
        ("re:orders|payments", "payments-2", False),
        ("re:.*orders.*", "my-orders-2", True),
        ("ORDERS", "orders", False),
    ],
)
def test_patterns_match_entire_names(pattern: str, name: str, *, matched: bool) -> None:
    assert matches([pattern], name) is matched


SCOPED = "version: 1\ngroups: {scope: %s}\ntopics: [{match: t%s}]\n"


def archiving_to(url: object) -> str:
    return f"version: 1\ntopics:\n  - match: t\n    retention.ms: 1d\n    archive: {json.dumps(url)}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(  # retention.hours: 3 corrected to retention.ms: 3 would trim all that is older than 3 ms
            (
                f"version: 1\ntopics:\n  - match: t\n    {key}: 3\n",
                "retention.commitoffset.hours (read records), or retention.ms with a unit, such as 3h (all records)?",
            )
            for key in ("retention", "retention.hours", "log.retention.minutes", "retention.days")
        ),
        *(
            (
                f"version: 1\ntopics:\n  - match: t\n    {stem}.days: 3\n",
                f"did you mean {stem}.ms with a unit, such as 3h?",
            )
            for stem in ("retention.commitoffset", "retention.min.wallclock", "retention.max.eventtime")
        ),
        *((archiving_to(value), "kretain.yaml:5: archive: is not a URL") for value in (1, True, ["s3://a"], {"a": 1})),
        ("version: 1\ngroups:\n  start: {'*': soon}\ntopics: [{match: t}]\n", "kretain.yaml:3: *: 'soon' is not a dur"),
        (SCOPED % ("team-a.*", ""), "kretain.yaml:2: groups.scope: needs groups.require"),
        *(
            (SCOPED % (scope, ", groups.require: [x]"), f"kretain.yaml:2: scope: '{scope}' is not a prefix")
            for scope in ("team-a", "team-?.*", "re:team*")
        ),
        (
            entries("match: t, retention.until.consumed: {max: 3d}"),
            "kretain.yaml:3: retention.until.consumed: needs groups, or groups.require",
        ),
        *(
            (f"version: 1\naudit: {{{keys}}}\ntopics: [{{match: t}}]\n", f"kretain.yaml:2: {said}")
            for keys, said in (
                ("topic: _kretain_policy", "topic: '_kretain_policy' is one of kretain's own topics"),
                ("topic: __consumer_offsets", "topic: '__consumer_offsets' is one of kretain's own topics"),
                ("topic: 'a b'", "topic: 'a b' is not a topic's name"),
                ("max.bytes: 0", "max.bytes: 0 is too small"),
                ("otlp: x", "otlp: is not a key here"),
                ("max.size: 1MiB", "max.size: is not a key here"),
            )
        ),
        ("", "kretain.yaml: is empty"),
        ("# nothing\n", "kretain.yaml: is empty"),
        ("- 1\n", "kretain.yaml:1: is not a mapping"),
        ("version: 1\n", "kretain.yaml:1: topics: is missing"),
        ("version: 1\ntopics: []\n", "kretain.yaml:2: topics: is empty: an empty policy would match nothing"),
        ("version: 1\ntopics: {a: 1}\n", "kretain.yaml:2: topics: is not a list"),
        ("version: 1\ntopics: [t]\n", "kretain.yaml:2: topics: is not a mapping of keys to values"),
        ("version: 2\ntopics: [{match: t}]\n", "kretain.yaml:1: version: 2 is not a version that this kretain reads"),
        ("topics: [{match: t}]\n", "kretain.yaml:1: version: is missing"),
        ("version: 1\nversion: 1\ntopics: [{match: t}]\n", "kretain.yaml:2: version: is given twice (first in line 1)"),
        (
            "version: 1\ntopics:\n  - match: t\n    retention.ms: 1d\n    retention.ms: 2d\n",
            "kretain.yaml:5: retention.ms: is given twice",
        ),
        (
            "version: 1\ntopics:\n  - match: t\n    retention.commitoffset.hour: 1\n",
            "kretain.yaml:4: retention.commitoffset.hour: is not a key here; did you mean retention.commitoffset.hours?",
        ),
        (
            "version: 1\ntopics:\n  - match: t\n    log.retention.commitoffset.enable: true\n",
            "did you mean retention.commitoffset.enable?",
        ),
        (
            "version: 1\ntopics:\n  - match: t\n    enable: true\n",
            "kretain.yaml:4: enable: is not a key here; did you mean retention.commitoffset.enable?",
        ),
        (
            "version: 1\ntopics:\n  - match: t\n    foo.bar: 1\n",
            "kretain.yaml:4: foo.bar: is not a key here (docs/policy.md#entries)",
        ),
        ("version: 1\nxyz: 1\ntopics: [{match: t}]\n", "xyz: is not a key here (docs/policy.md#the-top-level)"),
        ("version: 1\ngroups: {foo: 1}\ntopics: [{match: t}]\n", "foo: is not a key here (docs/policy.md#groups)"),
        ("version: 1\nlimits: {foo: 1}\ntopics: [{match: t}]\n", "keys are max.records, max.bytes, max.percent"),
        (
            "version: 1\ntopics:\n  - match: t\n    log.retention.disk.usage.percent: 80\n",
            "is not a key here; it belongs to the file's top level, under disks: {log.retention.disk.usage.percent: …}",
        ),
        (
            "version: 1\ngroups: {ignored: []}\ntopics: [{match: t}]\n",
            "kretain.yaml:2: ignored: is not a key here; did you mean ignore?",
        ),
        ("version: 1\ngroups.ignore: []\ntopics: [{match: t}]\n", "write groups: {ignore: …}"),
        ("version: 1\nretention.ms: 1d\ntopics: [{match: t}]\n", "it belongs to an entry of topics"),
        ("version: 1\ntopics: [{match: t, limits: {}}]\n", "it belongs to the file's top level"),
        (
            "version: 1\ntopics:\n  - match: t\n    retention.ms: 3x\n",
            "kretain.yaml:4: retention.ms: '3x' is not a duration such as 3d",
        ),
        ("version: 1\ntopics:\n  - match: t\n    retention.ms: 3\u00a0GiB\n", "is not a duration"),
        ("version: 1\ntopics:\n  - match: t\n    retention.ms: -2\n", "kretain.yaml:4: retention.ms: -2 is negative"),
        ("version: 1\ntopics:\n  - match: t\n    retention.ms: 1.5\n", "1.5 is not a duration"),
        *(  # to YAML 1.1 these are 86,400, 90.5, 58 and 60: far less time is kept than anybody who wrote it meant
            (
                f"version: 1\ntopics:\n  - match: t\n    {text}\n",
                f"kretain.yaml:4: {text.partition(': ')[0]}: {what}",
            )
            for text, what in (
                ("retention.ms: 24:00:00", "has a colon, so YAML reads it as base 60: give a plain number"),
                ("retention.ms: 1:30.5", "has a colon, so YAML reads it as base 60"),
                ("retention.commitoffset.hours: 072", "begins with 0, so YAML reads it as octal: remove the 0"),
                ("groups.require: [072]", "begins with 0, so YAML reads it as octal"),
            )
        ),
        (
            "version: 1\ngroups: {remember: 1:00}\ntopics: [{match: t}]\n",
            "kretain.yaml:2: remember: has a colon",
        ),
        ("version: 1\ntopics:\n  - match: t\n    retention.ms: true\n", "True is not a duration"),
        ("version: 1\ntopics:\n  - match: t\n    retention.ms: '604800000'\n", "is not a duration"),
        ("version: 1\ntopics:\n  - match: t\n    retention.commitoffset.ms: -1\n", "-1 is negative"),
        ("version: 1\ntopics:\n  - match: t\n    retention.commitoffset.enable: yes please\n", "is not true or false"),
        ("version: 1\ntopics:\n  - match: t\n    retention.commitoffset.enable: 1\n", "1 is not true or false"),
        (
            "version: 1\ntopics:\n  - match: t\n    unconsumed: delete\n",
            "kretain.yaml:4: unconsumed: 'delete' is not hold or trim",
        ),
        ("version: 1\ntopics:\n  - match: t\n    hold:\n", "kretain.yaml:4: hold: has no value"),
        ("version: 1\ntopics:\n  - match: t\n    hold: ''\n", "kretain.yaml:4: hold: give the reason"),
        ("version: 1\ntopics:\n  - match: t\n    hold: true\n", "kretain.yaml:4: hold: give the reason"),
        ("version: 1\ntopics:\n  - match: []\n    retention.ms: 1d\n", "kretain.yaml:3: match: is empty"),
        ("version: 1\ntopics:\n  - retention.ms: 1d\n", "kretain.yaml:3: match: is missing"),
        ("version: 1\ntopics:\n  - match: 're:('\n", "is not a regular expression"),
        ("version: 1\ntopics:\n  -\n", "kretain.yaml:3: topics: an entry is empty"),
        ("version: 1\ntopics:\n  - match: 're:(?!a).*'\n", "kretain.yaml:3: match: 're:(?!a).*' is not a regular"),
        ("version: 1\ntopics:\n  - match: [1]\n", "1 is not a name"),
        (
            "version: 1\ndisks: {log.retention.disk.usage.percent: 0.8}\ntopics: [{match: t}]\n",
            "kretain.yaml:2: log.retention.disk.usage.percent: 0.8 is less than one percent: write 80 for 80 %, or '0.8%'",
        ),
        ("version: 1\ndisks: {devices: [[/a, data]]}\ntopics: [{match: t}]\n", "'data' is not a log dir: write it as"),
        ("version: 1\nlimits: {max.percent: 101}\ntopics: [{match: t}]\n", "101 is not a percentage"),
        ("version: 1\nlimits: {max.bytes: 5 apples}\ntopics: [{match: t}]\n", "'5 apples' is not a size"),
        ("version: 1\nlimits: {max.records: -1}\ntopics: [{match: t}]\n", "-1 is less than 0"),
        ("version: 1\nlookup.scan.records: 0\ntopics: [{match: t}]\n", "0 is less than 1"),
        (
            "version: 1\ntopics:\n  - match: t\n    retention.commitoffset.enable: true\n",
            "kretain.yaml:4: retention.commitoffset.enable: is true but no time is set",
        ),
        ("version: 1\ntopics: [\n", "kretain.yaml:3: not YAML"),
        ("version: 1\n\ttopics: []\n", "kretain.yaml:2: not YAML"),
        ("version: 1\ntopics: &a [*a]\n", "refers to itself"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("version: !!python/object:os.system 1\ntopics: []\n", "not YAML"),
    ],
)
def test_policy_error_has_its_line_and_a_suggestion(text: str, said: str) -> None:
    found = problems(text)
    assert any(said in problem for problem in found), found
    assert all("\n" not in problem for problem in found)


def test_enabled_rule_without_a_time_is_a_problem_with_its_line() -> None:
    text = entries("match: a, retention.commitoffset.enable: true", "match: b, retention.commitoffset.hours: 1")
    said = refusal(PolicyError, policy(text).settings_for, "a")
    assert "kretain.yaml:3: retention.commitoffset.enable: is true for topic a but no time" in said


def test_byte_order_mark_in_a_policy_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + entries("match: t, retention.ms: 1d").encode())
    loaded = load_policy(path)
    assert loaded.settings_for("t") is not None
    assert loaded.digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("retention.ms: 9223372036854775808", "retention.ms: 9223372036854775808 is more than Kafka allows"),
        ("retention.commitoffset.hours: 9223372036854775807", "9223372036854775807 is more than Kafka allows"),
        ("retention.ms: 99999999999999999999d", "'99999999999999999999d' is more than Kafka allows"),
        ("retention.bytes: 9999PiB", "'9999PiB' is more than Kafka allows"),
        ('log.retention.min.timestamp: "9223372036854775808"', "'9223372036854775808' is not a time in Unix ms"),
        ("log.retention.min.timestamp: 1969-12-31T23:59:59Z", "is not a time in Unix ms"),
        (f"retention.ms: {'x' * 10_000}", "'xxxx"),
        (f"unconsumed: {'x' * 10_000}", "xxxx"),
    ],
)
def test_absurd_value_is_refused_in_a_short_line(keys: str, said: str) -> None:
    [found] = problems(entries(f"match: t, {keys}"))
    assert said in found
    assert len(found) < 250


FILE = entries(
    'match: "orders*", retention.ms: 7d, retention.commitoffset.enable: true, retention.commitoffset.hours: 5',
    "match: _schemas, retention.ms: 1d",
)


def test_one_off_flags_manage_a_topic_that_the_file_does_not_match() -> None:
    loaded = policy(FILE).with_one_off(OneOff(patterns=("payments", "_private", "_p*"), older_than_ms=2))
    assert (
        loaded.settings_for("payments").forced_age_ms,
        [loaded.settings_for(name).named_in_full for name in ("_private", "_public")],
    ) == (2, [True, False])
    assert policy(FILE).with_one_off(OneOff(patterns=("payments",))).settings_for("payments") is None, (
        "a topic without a flag"
    )


@pytest.mark.parametrize("unconsumed", ["hold", "trim"])
def test_unconsumed_flag_alone_names_no_topic_in_full(unconsumed: Any) -> None:
    """G5: it turns no rule on, and the file's rule reaches the topic by a pattern alone."""
    loaded = policy(entries('match: "*", retention.ms: 7d'))
    found = loaded.with_one_off(OneOff(patterns=("_private",), unconsumed=unconsumed)).settings_for("_private")
    assert (known(found).named_in_full, known(found).unconsumed) == (False, unconsumed)


def test_json_schema_agrees_with_the_loader() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    check = jsonschema.Draft202012Validator(json_schema())
    good = """version: 1
groups: {ignore: ["console-consumer-*"], require: [], latest: tail}
limits: {max.percent: 50, max.bytes: 50GiB, max.records: 5}
lookup.scan.records: 100
topics:
  - match: ["orders.*", payments]
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 72
    retention.ms: 7d
  - {match: x, unconsumed: trim, compacted: trim, allow.ancient: true, hold: why, groups.require: [a], retention.ms: -1}
"""
    policy(good)
    assert check.is_valid(yaml.safe_load(good))
    for bad in (
        "version: 2\ntopics: [{match: t}]",
        "version: 1\ntopics: []",
        "version: 1\ntopics: [{}]",
        "version: 1\ntopics: [{match: t, nonsense: 1}]",
        "version: 1\ntopics: [{match: t, retention.ms: 3x}]",
        "version: 1\ntopics: [{match: t, unconsumed: maybe}]",
        "version: 1\ntopics: [{match: t, hold: null}]",
        "version: 1\nlimits: {max.percent: 101}\ntopics: [{match: t}]",
    ):
        assert problems(bad)
        assert not check.is_valid(yaml.safe_load(bad)), bad


CONFLICT = entries(
    'match: "orders*", retention.commitoffset.enable: true, retention.commitoffset.hours: 72, retention.ms: 1d'
)
POINTLESS = entries("match: t, retention.commitoffset.hours: 1", "match: u, unconsumed: trim")
KEPT_FOR = "version: 1\ngroups: {require: [a]}\ntopics: [{match: t, retention.ms: %s}]\n"


@pytest.mark.parametrize(
    ("text", "problems", "notes"),
    [
        pytest.param(CONFLICT, ["3 d", "1 d"], ["groups.require"], id="R4 before R1, and no required group"),
        pytest.param(POINTLESS, [], ["", "", ""], id="what has no effect"),
        (KEPT_FOR % "1d", [], []),
        *((KEPT_FOR % age, [], [""]) for age in ("7", "0")),
        (KEPT_FOR % "604800", [], ["is 604,800 ms, 605 s: a bare number is in ms; write a unit"]),
        *((KEPT_FOR % age, [], []) for age in ("30m", "1h", "3600000", "-1")),
    ],
)
def test_policy_check_without_a_cluster_finds_file_errors(text: str, problems: list[str], notes: list[str]) -> None:
    found = check_alone(policy(text))
    assert [all(one in problem.text for one in problems) for problem in found.problems] == [True] * bool(problems)
    assert len(found.notes) == len(notes)
    assert all(said in note for said, note in zip(notes, found.notes, strict=True))


def test_age_in_milliseconds_that_looks_like_another_unit_is_noted_in_each_plan() -> None:
    """``retention.ms: 72``, meant as 72 hours, trims the entire topic; not everyone runs ``policy check`` first."""
    found = check_matches(Selection(policy(KEPT_FOR % "72")), ["t"])
    assert [str(one.text).partition(": ")[2] for one in found] == [
        "retention.ms: is 72 ms, 0.072 s: a bare number is in ms; write a unit, such as 7d"
    ]
    assert check_matches(Selection(policy(KEPT_FOR % "72h")), ["t"]) == []
    live = LiveSettings(values={"t": {"retention.ms": Origin(72, "_kretain_policy-0 offset 7")}})
    assert [
        str(one.text) for one in check_matches(Selection(replace(policy(KEPT_FOR % "cluster"), live=live)), ["t"])
    ] == [
        "_kretain_policy-0 offset 7: retention.ms: is 72 ms, 0.072 s: a bare number is in ms; write a unit, such as 7d"
    ]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            entries("match: [paymnts, 'ledger.*'], hold: legal"),
            ["p.yaml:3: match: no topic paymnts; did you mean payments?"],
        ),
        (entries("match: ['*', '!payments']"), ["p.yaml:3: match: no topic !payments; did you mean payments?"]),
        (
            "version: 1\nfloors: [{file: /f.json, name: f, topics: [paymnts, payments]}]\ntopics: [{match: payments}]",
            ["p.yaml: floors, file: topics: no topic paymnts; did you mean payments?"],
        ),
        (entries("match: [payments, 'ledger.*']"), []),
        (
            entries("match: [payments, " + ", ".join(f"x{n}" for n in range(6)) + "]"),
            [*(f"p.yaml:3: match: no topic x{n}" for n in range(5)), "p.yaml: 1 more pattern matches no topic"],
        ),
        (
            "version: 1\ngroups: {remember: 30, watch.first: 7, start: {billing: 1}}\ntopics: [{match: payments}]",
            [
                f"p.yaml: {key}: is {ms} ms, 0.0{seconds} s: a bare number is in ms; write a unit, such as 7d"
                for key, ms, seconds in (
                    ("groups.remember", 30, "3"),
                    ("groups.watch.first", 7, "07"),
                    ("groups.start, billing", 1, "01"),
                )
            ],
        ),
        (
            entries("match: payments, retention.bytes: 500, retention.topic.bytes: 1, retention.min.wallclock.ms: 3"),
            [
                "p.yaml:3: retention.min.wallclock.ms: is 3 ms, 0.003 s: a bare number is in ms; write a unit, such as 7d",
                *(
                    f"p.yaml:3: retention.{key}: is {size}: a bare number is in bytes; write a unit, such as 500GB"
                    for key, size in (("bytes", "500 bytes"), ("topic.bytes", "1 byte"))
                ),
            ],
        ),
        (
            entries("match: payments, retention.until.consumed: {groups: [a], max: 14, max.bytes: 500}")
            + "disks: {watermarks: [{percent: 80, factor: 0.5, minimum: 2}]}\n",
            [
                f"p.yaml{place}: is {amount}: a bare number is in {unit}; write a unit, such as {example}"
                for place, amount, unit, example in (
                    (":3: retention.until.consumed, max", "14 ms, 0.014 s", "ms", "7d"),
                    (": disks.watermarks, minimum", "2 ms, 0.002 s", "ms", "7d"),
                    (":3: retention.until.consumed, max.bytes", "500 bytes", "bytes", "500GB"),
                )
            ],
        ),
    ],
)
def test_names_and_ages_that_look_like_mistakes_are_noted_in_each_plan(text: str, notes: list[str]) -> None:
    """A typo takes a topic out of a hold, or lets go what a consumer or a gone group still needs (F6, F7)."""
    found = check_matches(Selection(parse_policy(text, "p.yaml", "sha256:x")), ["ledger.eu", "payments"])
    assert [one.text for one in found] == notes


def test_policy_check_counts_one_topic_more_as_one() -> None:
    configs: dict[str, Any] = {f"orders-{n}": TopicConfig(frozenset({"delete"}), DAY) for n in range(4)}
    configs |= {f"payments-{n}": RequestFailedError("no", retriable=False) for n in range(4)}
    topics = {name: SimpleNamespace(internal=False) for name in configs}
    reader: Any = SimpleNamespace(
        metadata=lambda: SimpleNamespace(topics=topics),
        topic_configs=lambda names: {one: configs[one] for one in names},
    )
    found = check_against(
        policy(entries('match: "*", retention.commitoffset.enable: true, retention.commitoffset.hours: 72')), reader
    )
    assert [one.text.partition(":")[0] for one in found.problems] == [
        "orders-0, orders-1, orders-2 and 1 more topic",
    ]
    assert "and 1 more topic whose settings can't be read" in found.notes


def test_group_may_be_empty_and_topic_may_not() -> None:
    """Kafka has let clients without a group.id commit as the group ''."""
    assert (read_patterns(["", "tmp-*"]), matches([""], ""), matches([""], "a")) == (["", "tmp-*"], True, False)
    assert "is empty" in refusal(ValueError, read_topic_patterns, [""])


SECRET = "hunter2-s3cret"
GOOD = [
    "/archive",
    "/archive/kafka prod",
    "file:///archive",
    "s3://bucket",
    "s3://bucket/kafka/prod",
    "s3://bucket/kafka?region=eu-central-1&endpoint_override=minio:9000&scheme=http",
    "hdfs://namenode:8020/kafka",
    "hdfs://ha-cluster/kafka?replication=2",
    "viewfs://cluster/kafka",
    "gs://bucket/kafka",
    "abfss://backup@account.dfs.core.windows.net/kafka",
    "abfs://backup@account.dfs.core.windows.net/kafka?blob_storage_authority=127.0.0.1:10000&scheme=http",
]
BAD = {
    "": "is not a URL",
    "  ": "is not a URL",
    "archive": "is not absolute",
    "./archive": "is not absolute",
    "ftp://host/x": "starts with ftp://",
    "http://host/x": "starts with http://",
    "s3:///x": "names no bucket",
    "hdfs:///x": "names no name node",
    "file://host/x": "names a host",
    "file://x": "names a host",
    "s3://b/x#y": "has no meaning here",
    f"s3://key:{SECRET}@bucket/x": "environment",
    f"s3://key:a/{SECRET}@bucket/x": "environment",
    f"gs://{SECRET}@bucket/x": "environment",
    f"hdfs://user:{SECRET}@namenode/x": "environment",
    f"abfss://backup:{SECRET}@account.dfs.core.windows.net/x": "write abfss://container@account.dfs.core.windows.net",
    f"abfss://account:{SECRET}@backup/x": "write abfss://container@account",
    f"abfss://b@a.dfs.core.windows.net/x@{SECRET}": "environment",
    f"abfss://b@a.dfs.core.windows.net/x?sig={SECRET}": "environment",
    "abfss://backup/x": "write abfss://container@account",
    f"s3://bucket/x?secret_key={SECRET}": "environment",
    f"s3://bucket/x?{SECRET}": "environment",
    f"s3://bucket/x?region=r&access_key={SECRET}": "environment",
}


@pytest.mark.parametrize("url", GOOD)
def test_valid_archive_url_is_taken_unchanged(url: str) -> None:
    loaded = policy(archiving_to(url))
    assert check_url(url) == known(loaded.settings_for("t")).archive == url
    origin = known(loaded.origins("t"))["archive"]
    assert (origin.value, origin.place) == (url, "kretain.yaml:5")
    jsonschema.validate({"version": 1, "topics": [{"match": "t", "archive": url}]}, json_schema())


@pytest.mark.parametrize("url", BAD)
def test_invalid_archive_url_names_its_line_without_the_secret(url: str) -> None:
    error = raised(PolicyError, policy, archiving_to(url))
    assert str(error).startswith("kretain.yaml:5: archive: ")
    assert BAD[url] in str(error)
    assert SECRET not in f"{error}{error!r}"
    refusal(ValueError, check_url, url)


@pytest.mark.parametrize("url", ["/archive", "s3://bucket/kafka"])
def test_trailing_slashes_do_not_change_the_archive(url: str) -> None:
    assert check_url(f"{url}/") == check_url(url) == url


def resolved(policy_file: Path | None) -> Resolved:
    return resolve(Common(policy=policy_file, chosen=({}, "default")))


def test_command_line_argument_with_a_slash_is_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert split(["./a", "orders.*", "s3://b/k"], resolved(None)) == ([f"{tmp_path}/a", "s3://b/k"], ["orders.*"])
    assert SECRET not in refusal(UsageError, archive_url, f"s3://key:{SECRET}@bucket/x")


def test_command_without_a_url_uses_the_policys(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        'version: 1\ntopics:\n  - {match: "*", retention.ms: 1d, archive: /a}\n'
        "  - {match: t, archive: /b}\n  - {match: u, archive: none}\n"
    )
    settings = resolved(file)
    assert (split(["t"], settings), in_policy(settings, "t")) == ((["/a", "/b"], ["t"]), ["/b"])
    assert f"{file} names no archive for topic u" in refusal(UsageError, in_policy, settings, "u")
    assert "say where the archive is" in refusal(UsageError, split, ["t"], resolved(None))


TOPICS = "topics:\n  - {match: orders, retention.commitoffset.enable: true, retention.commitoffset.hours: 1}\n"


def with_floors(floors: str) -> str:
    return f"version: 1\nfloors:\n{floors}\n{TOPICS}"


@pytest.mark.parametrize(
    ("floor", "source"),
    [
        ("{file: flink.json, name: flink}", FloorSource("file", "flink", place="/etc/kretain/flink.json")),
        ("{file: /tmp/x.csv, name: a}", FloorSource("file", "a", place="/tmp/x.csv")),
        ("{file: ~/x.csv, name: a}", FloorSource("file", "a", place=str(Path.home() / "x.csv"))),
        (
            "{command: [./offsets, --json], name: prod}",
            FloorSource("command", "prod", place="/etc/kretain", command=("/etc/kretain/offsets", "--json")),
        ),
        (  # it is looked for in PATH
            "{command: [flink-offsets], name: prod}",
            FloorSource("command", "prod", place="/etc/kretain", command=("flink-offsets",)),
        ),
        (
            "{file: 's3://ops/flink.json', name: flink, topics: 'orders.*', max.age: 2h, timeout: 5s}",
            FloorSource(
                *("file", "flink"),
                place="s3://ops/flink.json",
                topics=("orders.*",),
                max_age_ms=7_200_000,
                timeout_ms=5_000,
            ),
        ),
        (
            "{zookeeper: 'zk1:2181,zk2:2181/kafka', groups: ['b*'], auth.file: zk.secret}",
            FloorSource(
                *("zookeeper", "zk1:2181,zk2:2181/kafka"),
                place="zk1:2181,zk2:2181/kafka",
                groups=("b*",),
                ignored=("console-consumer-*",),
                auth_file="/etc/kretain/zk.secret",
            ),
        ),
    ],
)
def test_each_floor_kind_has_its_defaults(floor: str, source: FloorSource) -> None:
    assert parse_policy(with_floors(f"  - {floor}"), "/etc/kretain/policy.yaml", "sha256:0").groups.sources == (source,)


@pytest.mark.parametrize(
    ("floors", "said"),
    [
        ("  - {file: a.json}", "policy.yaml:3: floors: name is missing: plans show the source by it"),
        (
            "  - {zookeeper: 'zk1/kafka'}",
            "policy.yaml:3: zookeeper: is not host:port, comma separated, and a chroot, such as zk1:2181,zk2:2181/kafka",
        ),
        (
            "  - {zookeeper: 'user:hunter2@zk1:2181'}",
            "policy.yaml:3: zookeeper: is not host:port, comma separated, and a chroot, such as zk1:2181,zk2:2181/kafka",
        ),
        (
            "  - {zookeeper: 'zk1:2181', name: old}",
            "policy.yaml:3: floors: zookeeper has no name or max.age: its groups have names and current positions",
        ),
        (
            "  - {file: a, name: a, groups: [b]}",
            "policy.yaml:3: floors: groups and auth.file are only for zookeeper",
        ),
        (
            "  - {name: a}",
            "policy.yaml:3: floors: an entry is of one kind: write one of file, command, zookeeper, checkpoint, replica",
        ),
        (
            "  - {name: a, file: a.json, command: [x]}",
            "policy.yaml:3: floors: an entry is of one kind: write one of file, command, zookeeper, checkpoint, replica",
        ),
        (
            "  - {name: 'a b', file: a}",
            "policy.yaml:3: name: 'a b' is not a name: letters, digits, '.', '_' and '-', up to 100",
        ),
        (
            "  - {name: a, file: a}\n  - {name: a, file: b}",
            "policy.yaml:2: floors: file:a appears twice: give each its own name",
        ),
        (
            "  - {name: a, command: flink --json}",
            'policy.yaml:3: command: is not a list of a program and its arguments, such as ["flink-offsets", "--json"]',
        ),
        (
            "  - {name: a, command: []}",
            'policy.yaml:3: command: is not a list of a program and its arguments, such as ["flink-offsets", "--json"]',
        ),
        (
            "  - {name: a, file: 'ftp://host/x'}",
            "policy.yaml:3: file: starts with ftp://, which is not one of file, s3, hdfs, viewfs, gs, abfs, abfss, http, https",
        ),
        (
            "  - {name: a, file: 'https://user:hunter2@host/x'}",
            (
                "policy.yaml:3: file: has @, ? or #, which may carry a secret: use a URL without one, or fetch it "
                "with a command"
            ),
        ),
        ("  - {name: a, file: 'https://user:hunter2℀@host/x'}", "policy.yaml:3: file: is not a URL that can be read"),
        (
            "  - {name: a, file: 'https://host/x?token=hunter2'}",
            (
                "policy.yaml:3: file: has @, ? or #, which may carry a secret: use a URL without one, or fetch it "
                "with a command"
            ),
        ),
        ("  - {name: a, file: a, maxage: 1h}", "policy.yaml:3: maxage: is not a key here; did you mean max.age?"),
        ("  - {zookeeper: 'a:1', groups: []}", "policy.yaml:3: floors: groups is empty: no group would count"),
        ("  - {file: ' ', name: a}", "policy.yaml:3: file: is not a path or a URL"),
        ("  - {zookeeper: 'a:1', auth.file: ' '}", "policy.yaml:3: auth.file: is not a path"),
        ("  - {file: a, name: a, timeout: 0}", "policy.yaml:3: floors: timeout is not between 1 ms and 30 s"),
        ("  - {file: a, name: a, timeout: 100d}", "policy.yaml:3: floors: timeout is not between 1 ms and 30 s"),
        ("  - a.json", "policy.yaml:3: floors: is not a mapping of keys to values"),
        ("  a.json: 1", "policy.yaml:2: floors: is not a list: each entry starts with a dash"),
    ],
)
def test_invalid_floor_is_refused(floors: str, said: str) -> None:
    [problem] = raised(PolicyError, parse_policy, with_floors(floors), "policy.yaml", "sha256:0").problems
    assert str(problem) == said
    assert "hunter2" not in str(problem)


# -- a file's problems, all at once and bounded; and entries that match nothing, with what was perhaps meant --


PASSWORD = "hunter2"


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
  - match:
      - a
      - "re:["
      - "re:("
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
        *("p.yaml:17 match", "p.yaml:18 match"),  # each pattern of a list has its line
    ]
    assert not any("Value error" in one or "Input should" in one for one in found)


@pytest.mark.parametrize(("scope", "required"), [("team-a.*", "team-a.x"), ("*", "")])
def test_scope_is_the_prefix_of_group_names(scope: str, required: str) -> None:
    assert policy(SCOPED % (f"'{scope}'", f", groups.require: ['{required}']")).groups.scope == scope[:-1]


def test_many_problems_are_truncated_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    text = "version: 1\ntopics:\n" + "".join(f"  - {{match: t, k{n}: 1}}\n" for n in range(MOST_REPORTED + 3))
    error = raised(PolicyError, parse_policy, text, "p.yaml", "")
    exits.report(error, 0)
    said = capsys.readouterr().err.splitlines()
    assert (len(error.problems), len(said)) == (MOST_REPORTED + 3, MOST_REPORTED + 1)
    assert said[0].startswith("kretain: p.yaml:3: k0: is not a key here")
    assert said[-1] == "kretain: p.yaml: … and 3 more problems: fix these first"


MISTAKES: dict[str, str | bytes] = {
    "passwd": f"root:x:0:0:{PASSWORD}:/root:/bin/bash\ndaemon:x:1:1:{PASSWORD}:/usr/sbin:/bin/sh\n" * 40,
    "a text": f"Call me {PASSWORD}. Some years ago: never mind how long.\n" * 20_000,
    "csv": f"name,password\nalice,{PASSWORD}\n" * 1000,
    "properties": f"sasl.password={PASSWORD}\nsecurity.protocol=SSL\n",
    "properties with colons": "".join(f"{PASSWORD}.{n}: {PASSWORD}\n" for n in range(5000)),
    "a log": f"2026-11-01T00:00:00Z ERROR {PASSWORD} [x] {{y}}\n" * 1000,
    "pem": f"-----BEGIN PRIVATE KEY-----\n{PASSWORD}\n-----END PRIVATE KEY-----\n",
    "json": json.dumps({"users": [{"name": PASSWORD}] * 50}, indent=1),
    "a list": f"- {PASSWORD}\n" * 1000,
    "shell": f"#!/bin/sh\nexport PASSWORD='{PASSWORD}'\nif [ -z \"$1\" ]; then echo `id`; fi\n",
    "binary": b"\x7fELF\x02\x01\x01" + b"\0" * 50 + PASSWORD.encode() + bytes(range(256)) * 100,
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
    assert load is load_fleet or PASSWORD not in str(error)


NAMES = ("clicks", "flights", "orders.eu.created", "orders.us.created", "payments-eu", "payments-us", "__near")


def matching(*patterns: str) -> Policy:
    """Return a policy of an entry per pattern, whose patterns stand in lines 3, 5 and so on."""
    entries = "".join(f"  - match: {one}\n    retention.ms: 7d\n" for one in patterns)
    return parse_policy(f"version: 1\ntopics:\n{entries}", "prod.yaml", "sha256:x")


MANY = [f"team-{number % 97}.service-{number}.events" for number in range(20_000)]


@pytest.mark.parametrize(
    ("patterns", "names", "name"),
    [
        *(
            ([pattern], NAMES, name)
            for pattern, name in [
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
            ]
        ),
        pytest.param(["clocks", "flihts"], NAMES, "flights", id="the most similar pattern"),
        pytest.param(["zzzzzzzz", "payments-eux"], NAMES, "payments-eu", id="the most similar name"),
        pytest.param(["flight"], (), None, id="no names"),
        pytest.param(["team-7.servcie-104.events"], MANY, "team-7.service-104.events", id="among many names"),
    ],
)
def test_most_similar_pattern_or_name_is_suggested(patterns: list[str], names: Sequence[str], name: str | None) -> None:
    """Of a glob its literal part is compared, with as much of a name."""
    assert nearest(patterns, names) == name


@given(st.text(max_size=300), st.sets(st.text("abc.-_", min_size=1), max_size=8))
def test_any_pattern_gives_a_name_or_none(pattern: str, names: set[str]) -> None:
    assert nearest([pattern, f"re:{pattern}"], names) in {*names, None}


def unmatched(one: Policy) -> NothingMatchesError:
    return raised(NothingMatchesError, check_matches, Selection(one), NAMES)


def test_policy_matching_nothing_names_each_entry_with_a_near_topic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = matching('"ordrs.*"', "flihgts", "[zzzzzzzz, clocks]", '"re:^x{9}$"')
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


def test_cluster_without_topics_is_named_before_any_entry() -> None:
    said = {
        refusal(NothingMatchesError, check_matches, Selection(matching("flights")), names)
        for names in ((), ("__consumer_offsets",))
    }
    assert said == {"no topic matches: the cluster has none, or this user lacks DESCRIBE on them"}


@pytest.mark.parametrize(
    ("count", "rest"), [(6, "1 more entry matches no topic"), (1_000, "995 more entries match no topic")]
)
def test_five_of_many_entries_are_named(count: int, rest: str) -> None:
    assert list(unmatched(matching(*(f"x{number}" for number in range(count)))).problems[4:]) == [
        "prod.yaml:11: match x4 matches no topic",
        f"prod.yaml: {rest}",
    ]


def test_shown_entry_is_short_and_printable() -> None:
    names = ", ".join(f"x{number}" for number in range(50))
    first, second, third = unmatched(matching(f"[{names}]", '"\\e[2J\\u202e"', "y" * 10_000)).problems
    assert (first, second) == (
        "prod.yaml:3: match x0, x1, x2 and 47 more matches no topic",
        "prod.yaml:5: match '\\x1b[2J\\u202e' matches no topic",
    )
    assert len(third) < 140


def test_single_entry_matching_nothing_is_a_note() -> None:
    assert [(note.code, note.text) for note in check_matches(Selection(matching("flights", '"ordrs.*"')), NAMES)] == [
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
    assert refusal(NothingMatchesError, check_matches, Selection(matching("flights"), (topic,)), NAMES) == said


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
    assert groups_not_there(matching("orders"), set()) == [], "what is ignored unless the policy says otherwise"


def test_models_are_built_before_threads_share_them() -> None:
    assert not StrictModel.model_config.get("defer_build", False), (
        "pydantic before 2.14 builds late without a lock: a thread's policy would lack its limits"
    )
