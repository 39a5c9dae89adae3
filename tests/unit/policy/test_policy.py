"""The policy file: names, units, precedence, and errors that name the place and the way out (docs/rules.md, docs/policy.md)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml

from kretain.commands.archive import archive_url, in_policy, split
from kretain.config import Resolved, resolve
from kretain.errors import UsageError
from kretain.options.common import Common
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import TopicConfig
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import load_policy, parse_policy
from retention_cli.policy.model import matches
from retention_cli.policy.schema import json_schema
from retention_cli.policy.settings import FloorSource, OneOff, Settings
from retention_cli.policy.urls import check_url
from retention_cli.policy.values import read_patterns, read_topic_patterns
from retention_cli.reports.policy_check import check_against, check_alone
from tests.support.facts import known, policy
from tests.support.says import raised, refusal

HOUR = 3_600_000
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


def test_only_console_consumers_are_ignored_by_default() -> None:
    assert policy(entries("match: t")).groups.ignore == ("console-consumer-*",)


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
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
    loaded = policy(
        entries("match: a, retention.commitoffset.enable: true", "match: b, retention.commitoffset.hours: 1")
    )
    assert "kretain.yaml:3: retention.commitoffset.enable: is true for topic a but no time" in refusal(
        PolicyError, loaded.settings_for, "a"
    )


def test_missing_policy_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(PolicyError, load_policy, tmp_path / "none.yaml")


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


def archiving_to(url: object) -> str:
    return f"version: 1\ntopics:\n  - match: t\n    retention.ms: 1d\n    archive: {json.dumps(url)}\n"


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


@pytest.mark.parametrize("value", [1, True, ["s3://a"], {"a": 1}])
def test_archive_value_of_another_type_is_refused(value: object) -> None:
    assert "kretain.yaml:5: archive: is not a URL" in refusal(PolicyError, policy, archiving_to(value))


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
