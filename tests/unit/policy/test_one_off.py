"""One-off rules over a policy file: they are the only triggers of that run (docs/policy.md, R4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kretain.errors import UsageError
from kretain.options.rules import RuleFlags
from kretain.render.plan import print_plan
from retention_cli.core.model import Unknown
from retention_cli.engines.fleet.plan import FleetPlan
from retention_cli.plan.value import Plan, head_as_json
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import LIVE, LiveSettings, Policy
from retention_cli.policy.schema import LIVE_KEYS, EntryModel, keys_of
from retention_cli.policy.settings import TRIGGER_FLAGS, TRIGGER_KEYS, OneOff, Origin, Settings
from tests.support.facts import known
from tests.support.plans import plan
from tests.support.says import refusal

HOUR = 3_600_000
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
    flags = {**FLAGS, "--unconsumed": {"unconsumed": "trim"}}[flag]
    assert settings(replace(marked(key).with_one_off(OneOff(**flags)), live=live)).unsettled == why


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
SAID = (
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
    assert (SAID in out, "One-off" in out) == (said, said)


def test_fleet_table_mentions_one_off_rules_once(capsys: pytest.CaptureFixture[str]) -> None:
    clusters = {"eu": planned(ONE_OFF), "us": planned(ONE_OFF, "us.yaml"), "ap": planned(ONE_OFF)}
    print_plan(FleetPlan(0, "fleet.yaml", None, clusters), "table", every_row=False)
    said = capsys.readouterr().out
    assert said.count("One-off rules") == 1
    assert "The rules of prod.yaml, us.yaml are off for this run; their guards" in said
