"""Settings over a policy file: the policy topic's messages (docs/live-settings.md), and one-off rules (docs/policy.md, R4)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from kretain.errors import UsageError
from kretain.options.plans import RuleFlags
from kretain.render.plan import print_plan
from retention_cli.core.model import Unknown
from retention_cli.engines.fleet.plan import FleetPlan
from retention_cli.plan.value import Plan, head_as_json
from retention_cli.policy.live import (
    LiveEditError,
    LiveValueError,
    Message,
    check_settings,
    check_value,
    last_message,
    list_settings,
    live_settings,
    parse_value,
    valid_settings,
    without,
)
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import LIVE, LiveSettings, Policy, merged
from retention_cli.policy.schema import LIVE_KEYS, EntryModel, keys_of
from retention_cli.policy.settings import TRIGGER_FLAGS, TRIGGER_KEYS, OneOff, Origin, Settings
from tests.support.facts import HOUR, known
from tests.support.plans import plan
from tests.support.says import refusal, says

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
EVERY = parse_policy(
    "version: 1\ntopics: [{match: journal, " + ", ".join(f"{key}: cluster" for key in sorted(LIVE_KEYS)) + "}]",
    "policy.yaml",
    "sha256:test",
)
"""All that may live in the cluster does."""
M = "log.retention.min.timestamp"


def messages(*values: object, topic: str = "journal", first: int = 0) -> list[Message]:
    """Return a message per value: an object, raw bytes, or None for a tombstone."""
    raw = [one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in values]
    return [Message(0, offset, topic.encode(), one) for offset, one in enumerate(raw, first)]


def held(*said_so_far: object) -> list[str]:
    """Return why the topic is on hold; nothing where it isn't. What is on hold has no live values."""
    live = live_settings(POLICY, messages(*said_so_far))
    assert live.values.keys().isdisjoint(live.unsettled)
    return [reason.text for unknown in live.unsettled.values() for reason in unknown.reasons]


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (({M: 5, "retention.ms": "7d"}, {M: 9}), {M: 9}),
        (({M: 5}, None), {}),
        (({M: 5}, None, {M: "1970-01-01T00:00:00.009Z"}), {M: 9}),
    ],
    ids=["another message", "a tombstone", "a message after a tombstone"],
)
def test_last_live_message_replaces_earlier_ones(told: tuple[object, ...], found: dict[str, object]) -> None:
    place = f"_kretain_policy-0 offset {len(told) - 1}"
    assert live_settings(POLICY, messages(*told)).values.get("journal", {}) == {
        key: Origin(value, place) for key, value in found.items()
    }


def twice(key: str) -> bytes:
    return b'{"%s": 1, "%s": 2}' % (key.encode(), key.encode())


WRONG = [
    (b"", "is not JSON: it ends in the middle: it was cut short (at its character 1)"),
    (b"{", "is not JSON: it ends in the middle"),
    (b"[1]", "is not a JSON object of settings"),
    (b"null", "is not a JSON object of settings"),
    (b"{}", "sets nothing: to remove settings, write a message without a value (a tombstone)"),
    (b"\xff", "is not UTF-8"),
    (twice(M), "sets a key twice"),
    (b'{"' + M.encode() + b'": NaN}', "is not JSON: NaN is not a JSON number"),
    (b'{"' + M.encode() + b'": -Infinity}', "is not JSON: -Infinity is not a JSON number"),
    ({M: "soon"}, f"{M}: 'soon' is not a time"),
    ({M: 5, "retention.ms": "soon"}, "retention.ms: 'soon' is not a duration"),
    ({M: -1}, f"{M}: -1 is not a time in Unix ms"),
    ({"unconsumed": "maybe"}, "unconsumed: 'maybe' is not hold or trim"),
    ({"retention.commitoffset.enable": "yes"}, "retention.commitoffset.enable: 'yes' is not true or false"),
    ({"retention.commitoffset.enable": 1}, "retention.commitoffset.enable: 1 is not true or false"),
    ({"match": "x"}, "match can't be set in the policy topic"),
    ({M: 5, "unconsumed": "hold"}, "the policy file does not mark unconsumed as cluster for it"),
    ({M: 5, "retention.mss": 5}, "retention.mss can't be set in the policy topic; these can: "),
    ({M: 5, "hold": "x"}, "hold can't be set in the policy topic"),
    ({M: 5, "": 1}, "'' can't be set in the policy topic"),
    ({M: 5, "\u202e\x1b[2J": 1}, "'\\u202e\\x1b[2J' can't be set in the policy topic"),
    ({M: None}, f"{M} has no value: omit it, or delete the message"),
]


@pytest.mark.parametrize("before", [(), ({M: 5},), ({M: 5}, None)], ids=["first", "after one", "after a tombstone"])
@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_any_error_in_the_last_message_holds_the_topic(wrong: object, why: str, before: tuple[object, ...]) -> None:
    """What stood before must not stay in force until a log cleaner runs, and then go."""
    [text] = held(*before, wrong)
    assert text.startswith(f"_kretain_policy-0 offset {len(before)}, for topic journal: {why}")
    assert "so the topic is held: correct the message with kretain policy set" in text
    live = live_settings(POLICY, messages(*before, wrong))
    assert live.values == {}
    assert known(replace(POLICY, live=live).settings_for("journal")).unsettled is not None


@pytest.mark.parametrize(
    ("after", "found"),
    [({M: 5}, {"journal": {M: Origin(5, "_kretain_policy-0 offset 1")}}), (None, {})],
    ids=["a message", "a tombstone"],
)
@pytest.mark.parametrize("wrong", [wrong for wrong, _why in WRONG])
def test_valid_message_or_tombstone_ends_the_hold(wrong: object, after: object, found: dict[str, object]) -> None:
    assert live_settings(POLICY, messages(wrong, after)) == LiveSettings(found, unread=None)  # type: ignore[arg-type]


def test_only_some_of_many_wrong_keys_are_named() -> None:
    assert [
        text.partition("journal: ")[2][:9]
        for text in held({M: "soon", **{f"key-{number}": number for number in range(100_000)}})
    ] == [
        f"{M}: "[:9],
        "key-0 can",
        "key-1 can",
        "99,998 mo",
    ]


@pytest.mark.parametrize("topic", ["other", "nowhere"])
def test_message_for_a_topic_without_live_keys_is_noted(topic: str) -> None:
    live = live_settings(POLICY, messages(b"nonsense", {"retention.ms": 5}, topic=topic))
    assert (
        live.values,
        live.unsettled,
        [note.text for note in live.notes],
        live_settings(POLICY, messages(b"nonsense", None, topic=topic)).notes,
    ) == (
        {},
        {},
        [f"_kretain_policy-0 offset 1, for topic {topic}: the policy file marks nothing as cluster for it; ignored"],
        (),
    )


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"\xed\xa0\x80", b"a b", b"..", b"a" * 250, b"k" * 1_000_000])
def test_key_that_is_no_topic_is_named_and_ignored(key: bytes | None) -> None:
    assert (
        [note.text for note in live_settings(POLICY, [Message(0, 3, key, b"{}")]).notes],
        live_settings(POLICY, [Message(0, 3, key, b"{}"), Message(0, 4, key, None)]).notes,
    ) == (["_kretain_policy-0 offset 3: its key is not a topic name; ignored"], ())


# -- properties: the same before and after compaction; nothing ends the run -------------------

SOME_KEYS = (M, "retention.ms", "unconsumed", "retention.commitoffset.hours")
VALUE: st.SearchStrategy[Any] = st.sampled_from(
    [5, 0, -1, "7d", "soon", "trim", None, True, 1.5, [], "2026-11-01T00:00:00Z", 2**70]
)
SAID = (
    st.none()
    | st.dictionaries(st.sampled_from((*SOME_KEYS, "nonsense")), VALUE, max_size=3).map(
        lambda one: json.dumps(one).encode()
    )
    | st.sampled_from([b"", b"{", b"\xff", b"[]", twice(M)])
)
KEY = st.sampled_from([b"journal", b"other", b"nowhere", b"", b"\xff", None])


@given(st.lists(st.tuples(KEY, SAID), max_size=12))
def test_live_settings_are_equal_after_compaction_of_the_policy_topic(
    told: list[tuple[bytes | None, bytes | None]],
) -> None:
    """Whatever a cleaner takes, earlier messages of a key and then tombstones, changes nothing."""
    log = [Message(0, offset, key, value) for offset, (key, value) in enumerate(told)]
    last = {one.key or b"": one for one in log}
    compacted = [one for one in log if last[one.key or b""] is one]
    swept = [one for one in compacted if one.value is not None]
    assert live_settings(POLICY, log) == live_settings(POLICY, compacted) == live_settings(POLICY, swept)
    for policy in (POLICY, None):
        assert list_settings(log, policy) == list_settings(compacted, policy) == list_settings(swept, policy)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**4299), 10**4299)
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs", "Cc", "Cf"]))
    | st.text("0123456789", min_size=4000, max_size=6000).map(lambda digits: f"{digits}d"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(sorted(LIVE_KEYS)) | st.text(st.characters()), JSON, max_size=4)
HOSTILE = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"%s": ' % M.encode() + b"[" * 900 + b"]" * 900 + b"}",
    b'{"retention.ms": ' + b"9" * 5_000 + b"}",
    b'{"retention.ms": -' + b"9" * 5_000 + b"}",
    b'{"retention.commitoffset.hours": ' + b"9" * 4_300 + b"}",
    b'{"retention.ms": "' + b"9" * 5_000 + b'd"}',
    b'{"%s": "' % M.encode() + b"9" * 5_000 + b'"}',
    b'{"%s": 1e999}' % M.encode(),
    b'{"%s": 1e-999999999}' % M.encode(),
    b'{"%s": "0001-01-01T00:00:00+23:59"}' % M.encode(),
    b'{"%s": "99999999999999999999"}' % M.encode(),
    b'{"\\ud800": "\\udfff"}',
    b'{"%s": "\\ud800"}' % M.encode(),
    b'{"unconsumed": "' + b"\\u202e" * 1_000 + b'"}',
    b'{"' + b"k" * 1_000_000 + b'": 1}',
    b'{"unconsumed": "' + b"v" * 1_000_000 + b'"}',
    b'{"a": "' + b"v" * 1_000_000 + b'"}',
    b"\x00",
    b"\xef\xbb\xbf{}",
]


@given(st.binary() | OBJECTS.map(lambda one: json.dumps(one).encode()) | st.sampled_from(HOSTILE))
@example(b"")
@example(b'{"log.retention.min.timestamp":0}')
def test_any_message_bytes_give_settings_or_a_hold(raw: bytes) -> None:
    """Data never ends the run, and what is said of it is short, and can be printed anywhere."""
    try:
        parsed = parse_value(raw)
    except LiveValueError as error:
        telling(str(error), raw)
    else:
        for key, value in parsed.items():
            checks(key, value, raw)
    for policy in (POLICY, EVERY):
        live = live_settings(policy, [Message(0, 7, b"journal", raw)])
        settings = known(replace(policy, live=live).settings_for("journal"))
        unset = policy is EVERY and settings.unsettled is not None  # a guard that has no message yet holds, too
        assert unset or (settings.unsettled is not None) == ("journal" in live.unsettled)
        for unknown in live.unsettled.values():
            for reason in unknown.reasons:
                telling(reason.text, raw)


@pytest.mark.parametrize("raw", HOSTILE)
def test_hostile_message_holds_its_topic(raw: bytes) -> None:
    assert held(raw) != []
    for text in held(raw):
        telling(text, raw)


@given(st.sampled_from(sorted(LIVE_KEYS)) | st.text(st.characters()), JSON)
def test_any_live_value_gives_a_setting_or_an_error(key: str, value: object) -> None:
    checks(key, value, f"{key}\n{value if isinstance(value, str) else ''}".encode("utf-8", "surrogatepass"))


def checks(key: str, value: object, raw: bytes) -> None:
    try:
        found = check_value(key, value)
    except LiveValueError as error:
        telling(str(error), raw)
    else:
        assert isinstance(found, bool | str) or -1 <= found < 2**63


def telling(text: str, raw: bytes) -> None:
    """Look whether a text can be printed, is one line, and repeats little of a message."""
    assert text.isprintable()
    assert len(text.encode()) < 1500
    content = raw.decode("utf-8", "replace")
    assert not any(text[at : at + 81] in content for at in range(len(text) - 80))


# -- editing -----------------------------------------------------------------------------


def test_edit_starts_from_the_current_message_without_wrong_keys() -> None:
    """An hour of R1 is 1, not 3,600,000: it is read by the same key again. What is wrong holds the topic, and goes."""
    told = messages({M: "1970-01-01T00:00:00.005Z"}, {M: "soon", "retention.ms": "8d", "unconsumed": "trim"})
    word = known(last_message(told, POLICY, "journal"))
    assert (word.written, valid_settings(POLICY, "journal", word.written)) == (
        {M: "soon", "retention.ms": "8d", "unconsumed": "trim"},
        {"retention.ms": "8d"},
    )
    assert [text.partition("journal: ")[2] for text in word.problems] == [
        f"{M}: 'soon' is not a time: give ISO 8601, such as 2026-11-01T00:00:00Z, or Unix ms",
        "the policy file does not mark unconsumed as cluster for it",
    ]
    assert last_message(told, POLICY, "nothing") is None
    assert last_message([*told, *messages(None, first=2)], POLICY, "journal") is None


@pytest.mark.parametrize("policy", [POLICY, None])
def test_every_live_key_is_valid_without_a_file(policy: Any) -> None:
    """Others' words are not ours to drop."""
    word = known(
        last_message(messages({"retention.commitoffset.hours": 3, "hold": "x"}, topic="other"), policy, "other")
    )
    assert (len(word.problems), valid_settings(policy, "other", word.written)) == (
        1,
        {"retention.commitoffset.hours": 3},
    )


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"retention.commitoffset.hours": 2}, {"retention.ms": 1, "retention.commitoffset.hours": 2}),
        ({"retention.ms": 2}, {"retention.commitoffset.ms": 5, "retention.ms": 2}),
    ],
)
def test_last_of_three_spellings_of_one_time_stays(told: dict[str, object], found: dict[str, object]) -> None:
    assert merged({"retention.commitoffset.ms": 5, "retention.ms": 1}, told) == found


def test_unset_removes_a_key() -> None:
    assert (without({M: 5, "retention.ms": 1}, "journal", [M]), without({M: 5}, "journal", [])) == (
        {"retention.ms": 1},
        {},
    )


def test_unset_of_a_key_that_is_not_set_names_those_that_are() -> None:
    assert "unconsumed is not set for topic journal in the policy topic; it has log." in refusal(
        LiveEditError, without, {M: 5}, "journal", ["unconsumed"]
    )
    many = dict.fromkeys(("k" * 1_000_000, "\ud800", *map(str, range(1000))))
    telling(refusal(LiveEditError, without, many, "journal", ["unconsumed"]), b"k" * 1_000_000)


@pytest.mark.parametrize(
    ("topic", "wrong", "said"),
    [
        ("journal", {M: "soon", "hold": "x", "unconsumed": "hold"}, ["soon", "hold can't", "unconsumed itself"]),
        ("other", {"retention.ms": 5}, ["policy.yaml:9 sets retention.ms itself for topic other"]),
        ("nowhere", {"retention.ms": 5}, ["no entry of policy.yaml matches topic nowhere"]),
    ],
    ids=["all errors at once", "no live keys", "no entry"],
)
def test_wrong_live_edit_says_why(topic: str, wrong: dict[str, object], said: list[str]) -> None:
    check_settings(POLICY, "journal", {M: 5, "retention.ms": "7d"})
    says(refusal(LiveEditError, check_settings, POLICY, topic, wrong), *said)


def test_list_shows_effective_and_ineffective_settings() -> None:
    told = [*messages({M: 5, "retention.ms": "1d"}), *messages({"retention.ms": 5}, topic="other", first=1)]
    assert (
        [(one.topic, one.key, one.value, one.counts) for one in list_settings(told, POLICY).rows],
        {one.counts for one in list_settings(told, None).rows},
        [reason.text.rpartition(": ")[2] for reason in list_settings(told, POLICY).problems],
    ) == (
        [
            ("journal", M, 5, True),
            ("journal", "retention.ms", "1d", True),
            ("other", "retention.ms", 5, False),
        ],
        {None},
        ["the policy file marks nothing as cluster for it; ignored"],
    )


def test_list_explains_each_setting_of_a_wrong_message() -> None:
    told = messages({M: 5, "unconsumed": "hold", "hold": "x"})
    found = list_settings(told, POLICY)
    assert (
        [(one.key, one.counts, one.why_not) for one in found.rows],
        ["so the topic is held" in reason.text for reason in found.problems],
    ) == (
        [
            (M, False, "its message is wrong, so the topic is held"),
            (
                "unconsumed",
                False,
                "policy.yaml:7 sets unconsumed itself for topic journal, and does not mark it cluster",
            ),
        ],
        [True, True],
    )
    alone = list_settings(told, None)
    assert (
        [(one.key, one.counts) for one in alone.rows],
        [reason.text.partition("; ")[0] for reason in alone.problems],
    ) == (
        [(M, None), ("unconsumed", None)],
        ["_kretain_policy-0 offset 0, for topic journal: hold can't be set in the policy topic"],
    )


@pytest.mark.parametrize(("said", "held", "ms"), [([], True, None), ([0], False, 0), (["2h"], False, 7_200_000)])
def test_live_guard_that_was_never_set_holds(said: list[object], held: bool, ms: int | None) -> None:
    """Unknown means hold: a wall clock guard that nobody has set yet is not one that is off (G3)."""
    policy = parse_policy(
        "version: 1\ntopics: [{match: journal, retention.ms: 1d, retention.min.wallclock.ms: cluster}]",
        "policy.yaml",
        "sha256:test",
    )
    live = live_settings(policy, messages(*({"retention.min.wallclock.ms": one} for one in said)))
    found = known(replace(policy, live=live).settings_for("journal"))
    assert (found.unsettled is not None, found.min_wallclock_ms) == (held, ms)


# -- one-off rules over a policy file: they are the only triggers of that run --


DAY = 24 * HOUR
FLAGS: dict[str, dict[str, Any]] = {
    "--consumed-after": {"consumed_after_ms": DAY},
    "--event-time": {"event_time_ms": DAY},
    "--before": {"before_ms": 1_793_491_200_000},
    "--older-than": {"older_than_ms": 99_999_999 * DAY},
}
ASKED: dict[str, dict[str, Any]] = {
    "--consumed-after": {"consumed_after_ms": DAY},
    "--event-time": {"event_time_ms": DAY},
    "--before": {"min_timestamp_ms": 1_793_491_200_000},
    "--older-than": {"forced_age_ms": 99_999_999 * DAY, "forced_age_guarded": True},
}
"""What each flag comes to in a topic's settings, and nothing else does."""
TRIGGERS = {
    "retention.commitoffset.enable": "true, retention.commitoffset.ms: 5",
    "retention.commitoffset.ms": "5, retention.commitoffset.enable: true",
    "retention.commitoffset.minutes": "5, retention.commitoffset.enable: true",
    "retention.commitoffset.hours": "5, retention.commitoffset.enable: true",
    "retention.max.eventtime.ms": "5",
    "log.retention.min.timestamp": "2026-11-01T00:00:00Z",
    "retention.ms": "5",
    "retention.bytes": "5",
    "retention.topic.bytes": "5",
}
KEPT = {
    "retention.eventtime.source": "header:at",
    "retention.eventtime.ignore.future": "true",
    "on.unreadable": "skip",
    "allow.empty": "true",
    "retention.min.wallclock.ms": "2d",
    "retention.timestamp.max.ahead.ms": "2h",
    "granularity": "segment",
    "tiered": "trim",
    "unconsumed": "trim",
    "compacted": "trim",
    "allow.ancient": "true",
    "archive": "/archive",
    "hold": "legal",
    "groups.require": "[billing]",
    "lookup.scan.records": "7",
}


def policy(*lines: str, top: str = "") -> Policy:
    entry = "".join(f"    {line}\n" for line in lines)
    return parse_policy(f"version: 1\n{top}topics:\n  - match: flights\n{entry}", "prod.yaml", "sha256:x")


R1_NEEDS = {
    "retention.commitoffset.enable": ("retention.commitoffset.minutes: 5",),
    "retention.commitoffset.ms": ("retention.commitoffset.enable: true",),
    "retention.commitoffset.minutes": ("retention.commitoffset.enable: true",),
    "retention.commitoffset.hours": ("retention.commitoffset.enable: true",),
}


def marked(key: str) -> Policy:
    """Return a policy whose key lives in the cluster; R1, where it is about that, has all else that it needs."""
    return policy(f"{key}: cluster", *R1_NEEDS.get(key, ()))


def settings(one: Policy, topic: str = "flights") -> Settings:
    return known(one.settings_for(topic))


def test_every_entry_key_is_either_a_trigger_or_kept() -> None:
    """A new key belongs to one of the two."""
    assert (set(TRIGGERS), set(FLAGS)) == (set(TRIGGER_KEYS), set(TRIGGER_FLAGS))
    assert TRIGGER_KEYS.isdisjoint(KEPT)
    assert {*TRIGGERS, *KEPT, "match", "labels", "retention.until.consumed"} == set(keys_of(EntryModel))


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("key", TRIGGERS)
@pytest.mark.parametrize("patterns", [(), ("flights",), ("other",)])
def test_one_off_flag_turns_every_trigger_of_the_file_off(key: str, flag: str, patterns: tuple[str, ...]) -> None:
    """Also for topics that the flag is not for: what goes is what the flags say, and no more."""
    text = f"{key}: {TRIGGERS[key]}".replace(", ", "\n    ")
    in_file = policy(text)
    assert settings(in_file) != settings(policy("hold: x")), "the key itself does something"
    run = in_file.with_one_off(OneOff(patterns=patterns, **FLAGS[flag]))
    assert (settings(run), bool(run.needs_disks)) == (
        replace(Settings(named_in_full=True), **{} if patterns == ("other",) else ASKED[flag]),
        False,
    )
    origins = run.origins("flights") or {}
    kept = {"match", *(origin for origin in origins if origins[origin].place in FLAGS)}
    assert {name: one for name, one in origins.items() if name not in kept} == {
        name: Origin(None, f"prod.yaml:{line} (off: one-off rules)")
        for line, name in enumerate((line.partition(":")[0].strip() for line in text.splitlines()), 4)
        if name not in kept
    }


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("key", KEPT)
def test_guard_keys_of_the_file_stay_under_a_one_off_flag(key: str, flag: str) -> None:
    in_file = policy(f"{key}: {KEPT[key]}")
    assert settings(in_file) != settings(policy("retention.bytes: -1")), "the key itself does something"
    assert settings(in_file.with_one_off(OneOff(**FLAGS[flag]))) == replace(settings(in_file), **ASKED[flag])


TOP = """groups: {require: [billing], ignore: [x], latest: [y], remember: 5d}
limits: {max.percent: 7}
lookup.scan.records: 9
state: cluster
disks:
  log.retention.disk.usage.percent: 80
  capacity: 5GiB
  inventory: inventory/
  reserved: 1GiB
  devices: [[/a, /b]]
  shared: true
  watermarks: [{percent: 70, factor: 0.5, minimum: 1h}]
"""


@pytest.mark.parametrize("flag", FLAGS)
def test_one_off_flag_turns_disk_rules_off_and_keeps_other_top_level_keys(flag: str) -> None:
    """R6 and R7 stand at the top. What disks are like is no rule."""
    in_file = policy("hold: x", top=TOP)
    run = in_file.with_one_off(OneOff(**FLAGS[flag]))
    assert (in_file.needs_disks, run.needs_disks) == (True, False)
    assert run == replace(in_file, disks=replace(in_file.disks, percent=None, watermarks=()), one_off=run.one_off)


@pytest.mark.parametrize("key", TRIGGERS)
def test_unconsumed_flag_alone_turns_no_trigger_off(key: str) -> None:
    in_file = policy(f"{key}: {TRIGGERS[key]}".replace(", ", "\n    "), top=TOP)
    run = in_file.with_one_off(OneOff(unconsumed="trim"))
    assert (settings(run), run.disks) == (replace(settings(in_file), unconsumed="trim"), in_file.disks)


def test_policy_error_in_a_disabled_rule_does_not_block_a_one_off_run() -> None:
    """R1 without a time is an error of the rule that is off."""
    in_file = parse_policy(
        "version: 1\ntopics: [{match: flights, retention.commitoffset.enable: true}, "
        "{match: x, retention.commitoffset.ms: 5}]",
        "prod.yaml",
        "sha256:x",
    )
    assert settings(in_file.with_one_off(OneOff(older_than_ms=5))).forced_age_ms == 5


@pytest.mark.parametrize("flag", [*FLAGS, "--unconsumed"])
@pytest.mark.parametrize("key", sorted(LIVE_KEYS))
@pytest.mark.parametrize("unread", [False, True])
def test_unreadable_live_message_holds_despite_one_off_flags(key: str, flag: str, *, unread: bool) -> None:
    """Also where the flag has the very key, or turns it off: the message may have said anything."""
    why = Unknown.because("policy-topic", "is not JSON")
    live = LiveSettings(unread=why) if unread else LiveSettings(unsettled={"flights": why}, unread=None)
    one_off = OneOff(**FLAGS.get(flag, {"unconsumed": "trim"}))
    assert settings(replace(marked(key).with_one_off(one_off), live=live)).unsettled == why


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("key", sorted(LIVE_KEYS))
def test_live_trigger_is_off_and_live_guard_stays_under_a_one_off_flag(key: str, flag: str) -> None:
    """A live value is not laid over a flag either."""
    value = {"retention.commitoffset.enable": True, "unconsumed": "trim"}.get(key, 7)
    live = LiveSettings({"flights": {key: Origin(value, "_kretain_policy-0 offset 3")}}, unread=None)
    run = replace(marked(key).with_one_off(OneOff(**FLAGS[flag])), live=live)
    kept: dict[str, Any] = {"unconsumed": {"unconsumed": "trim"}, "retention.min.wallclock.ms": {"min_wallclock_ms": 7}}
    assert settings(run) == replace(Settings(named_in_full=True), **{**kept.get(key, {}), **ASKED[flag]})


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("key", sorted(LIVE_KEYS))
def test_unset_live_guard_holds_and_unset_live_trigger_does_not(key: str, flag: str) -> None:
    run = replace(marked(key).with_one_off(OneOff(**FLAGS[flag])), live=LiveSettings(unread=None))
    assert (settings(run).unsettled is not None, (run.origins("flights") or {})[key].value is LIVE) == (
        key == "retention.min.wallclock.ms",
        key not in TRIGGER_KEYS,
    )


def test_one_off_flag_overrides_a_live_value() -> None:
    live = LiveSettings({"flights": {"unconsumed": Origin("trim", "_kretain_policy-0 offset 3")}}, unread=None)
    run = replace(policy("unconsumed: cluster").with_one_off(OneOff(unconsumed="hold", older_than_ms=5)), live=live)
    assert settings(run).unconsumed == "hold"


def test_before_flag_above_kafkas_largest_time_is_a_usage_error() -> None:
    assert RuleFlags(before=2**63 - 1).for_topics([]).before_ms == 2**63 - 1
    assert refusal(UsageError, RuleFlags(before=2**63).for_topics, []).startswith(
        "--before: 9223372036854775808 is not a time in Unix ms"
    )


# -- what a plan says of it ---------------------------------------------------------------

ONE_OFF = OneOff(older_than_ms=7 * DAY, before_ms=1_793_491_200_000, unconsumed="trim")
IN_A_LINE = (
    "One-off rules: --before 2026-11-01T00:00:00Z --older-than 7d --unconsumed trim. The rules of prod.yaml are off for "
    "this run; its guards, holds and limits stay.\n"
)


def planned(flags: OneOff, source: str = "prod.yaml") -> Plan:
    return plan(flags=flags.flags(), policy_source=source)


@pytest.mark.parametrize(
    ("flags", "rules"),
    [
        ({}, "file"),
        ({"unconsumed": "trim"}, "file"),
        *(({name: value}, "one-off") for flag in FLAGS.values() for name, value in flag.items()),
        ({"before_ms": 0, "unconsumed": "hold"}, "one-off"),
    ],
)
def test_plan_json_names_the_source_of_its_rules(flags: dict[str, Any], rules: str) -> None:
    assert head_as_json(planned(OneOff(**flags)))["policy"]["rules"] == rules


@pytest.mark.parametrize(
    ("flags", "source", "said"),
    [
        (ONE_OFF, "prod.yaml", True),
        (OneOff(unconsumed="trim"), "prod.yaml", False),
        (OneOff(older_than_ms=5), "flags", False),
    ],
    ids=["rules", "no rule", "no file"],
)
def test_plan_table_mentions_one_off_rules_in_a_line(
    capsys: pytest.CaptureFixture[str], flags: OneOff, source: str, *, said: bool
) -> None:
    print_plan(planned(flags, source), "table", every_row=False)
    out = capsys.readouterr().out
    assert (IN_A_LINE in out, "One-off" in out) == (said, said)


def test_fleet_table_mentions_one_off_rules_once(capsys: pytest.CaptureFixture[str]) -> None:
    clusters = {"eu": planned(ONE_OFF), "us": planned(ONE_OFF, "us.yaml"), "ap": planned(ONE_OFF)}
    print_plan(FleetPlan(0, "fleet.yaml", None, clusters), "table", every_row=False)
    said = capsys.readouterr().out
    assert said.count("One-off rules") == 1
    assert "The rules of prod.yaml, us.yaml are off for this run; their guards" in said
