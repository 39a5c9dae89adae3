"""``kretain advise`` as people and scripts use it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.advising import Shop, advice, codes
from tests.support.world import HOUR


def test_advised_policy_is_valid(advised: Shop, tmp_path: Path) -> None:
    world, names = advised
    chosen = [names[stem] for stem in ("good", "segment", "compacted")]
    out = world.cli("advise", *chosen, check=0).out
    text = out.partition("Or exactly, by kretain's policy\n")[2].partition("\n")[2]
    policy = tmp_path / "policy.yaml"
    policy.write_text(text)
    assert yaml.safe_load(text)["topics"] == [
        {"match": names["good"], "retention.ms": "7d"},
        {"match": names["segment"], "retention.ms": "1h"},
    ]
    world.cli("policy", "check", str(policy), check=0)
    # Under it the broker's longer segment is no matter: old records go in the next run.
    world.commit(f"{names['segment']}-a", names["segment"], 2)
    plan = world.cli("plan", names["segment"], "-p", str(policy), "-o", "json", check=0).json()
    assert [row["action"] for row in plan["partitions"]] == ["keep"], "its records are younger than an hour"
    assert advice(world, names["segment"], "-p", str(policy))["advice"]["policy_entry"] is None, "it says so already"


def test_advise_judges_topics_by_the_given_policy(advised: Shop, tmp_path: Path) -> None:
    world, names = advised
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"version: 1\ntopics: [{{match: {names['good']}, retention.ms: 10d}}]\n")
    done = world.cli("advise", "-p", str(policy), "-o", "json", check=0).json()
    assert [(row["topic"], codes(row)) for row in done["topics"]] == [(names["good"], {"broker-before-policy"})]
    assert done["topics"][0]["wanted_by"] == "policy"
    assert done["topics"][0]["advice"]["broker_properties"] == {"offsets.retention.minutes": 14_400}
    both = world.cli("advise", names["good"], names["long"], "-p", str(policy), "-o", "json", check=0)
    assert [row["wanted_by"] for row in both.json()["topics"]] == ["policy", "retention.ms"]
    assert f"does not manage {names['long']}: judged without it" in both.err
    policy.write_text("version: 1\ntopics: [{match: nothing-*, retention.ms: 1d}]\n")
    assert "no entry matches" in world.cli("advise", "-p", str(policy), check=1).err


def test_advise_wanted_retention_changes_the_settings(advised: Shop) -> None:
    """The guide's second row, on a cluster that takes no segment.ms below a day."""
    world, names = advised
    row = advice(world, names["good"], "--want", "12h", "--min-segment", "1d")
    assert (row["wanted_ms"], row["wanted_by"]) == (12 * HOUR, "--want")
    assert row["advice"]["settings"] == {"retention.ms": 12 * HOUR}
    assert row["advice"]["then_at_most"]["settings_ms"] == 36 * HOUR
    assert row["advice"]["policy_entry"] == {"match": names["good"], "retention.ms": "12h"}
    assert row["advice"]["policy_at_most_ms"] == 12 * HOUR


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("no-such-topic",), 1, "no topic matches 'no-such-topic'"),
        (("re:(",), 2, "'re:('"),
        (("x", "--want", "soon"), 2, "'soon' is not a duration"),
        (("x", "--want-bytes", "much"), 2, "'much' is not a size"),
        (("x", "-p", "nowhere.yaml"), 1, "nowhere.yaml: cannot be read"),
    ],
)
def test_advise_errors_have_their_exit_codes(advised: Shop, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = advised[0].cli("advise", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in " ".join(done.err.split())


def test_advise_covers_internal_topics_only_when_named(advised: Shop) -> None:
    world, names = advised
    world.commit("adv-any", names["good"], 1)
    assert "__consumer_offsets" not in world.cli("advise", "-o", "csv", check=0).out
    assert advice(world, "__consumer_offsets")["advice"]["policy_entry"] is None
