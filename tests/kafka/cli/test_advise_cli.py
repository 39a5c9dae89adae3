"""``kretain advise`` as people and scripts use it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import yaml

from tests.support.advising import Shop, advice, codes
from tests.support.world import DAY, HOUR, run_cli


def test_advise_table_shows_topics_then_dangers_then_commands(advised: Shop) -> None:
    world, names = advised
    done = world.cli("advise", *names.values(), check=0)
    lines = {line.split()[0]: " ".join(line.split()) for line in done.out.splitlines() if line.startswith("adv-")}
    assert lines[names["segment"]].startswith(f"{names['segment']} 1h 7d 1h 1h to 7d 1h")
    assert lines[names["segment"]].endswith("segment-above-retention segment.ms 1h → 2h")
    assert lines[names["good"]].startswith(f"{names['good']} 7d 8d 7d to 8d")
    assert lines[names["good"]].endswith("none")
    assert "7 topics: 4 with dangers, 4 with better settings." in done.out
    assert "At most: retention.ms + segment.ms" in done.out
    assert "1s until they look" in done.out
    assert "the records' own timestamps (CreateTime)" in done.out
    assert f"    {names['segment']}: segment.ms (7d) is longer than retention.ms (1h)" in done.out
    assert f"    {names['future']} 1: partition 1, offset 1 is stamped" in done.out
    assert (
        f"  {names['segment']}: kept at most 2h instead of 7d 1h\n    kafka-configs.sh --bootstrap-server" in done.out
    )
    assert "    offsets.retention.minutes=43200\n" in done.out
    assert "\x1b" not in done.out
    assert done.err == ""


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


def test_advise_formats_have_the_same_rows(advised: Shop) -> None:
    world, names = advised
    base = ("advise", names["good"], names["segment"], "-o")
    as_json = world.cli(*base, "json", check=0).json()["topics"]
    as_yaml = yaml.safe_load(world.cli(*base, "yaml", check=0).out)["topics"]
    rows = list(csv.DictReader(io.StringIO(world.cli(*base, "csv", check=0).out)))
    assert [row["topic"] for row in as_yaml] == [row["topic"] for row in as_json] == [row["topic"] for row in rows]
    assert as_yaml[0]["at_most"] == as_json[0]["at_most"]
    assert rows[0]["at_most_ms"] == str(8 * DAY)
    assert rows[1]["dangers"].startswith("segment-above-retention: segment.ms (7d)")
    assert rows[1]["kafka_configs"] == as_json[1]["advice"]["kafka_configs"]
    assert rows[1]["policy_entry"] == f"match: {names['segment']}; retention.ms: 1h"


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


def test_advise_on_an_unreachable_cluster_is_one_line() -> None:
    done = run_cli("advise", "-b", "127.0.0.1:1", "--timeout", "1s")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


def test_advise_truncates_a_long_table_and_says_how_to_see_all(advised: Shop) -> None:
    world, _ = advised
    stem = world.topic("adv-many", retention_ms=str(DAY))
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    wanted = [NewTopic(f"{stem}-{n:02}", 1, 1, config={"retention.ms": str(DAY)}) for n in range(50)]
    for future in world.admin.create_topics(wanted).values():
        future.result(60)
    for one in wanted:
        world.await_leaders(one.topic, 1)
    short = world.cli("advise", f"{stem}-*", check=0).out
    assert "The 20 of 50 topics with most to say (all of them: --all, or -o csv)" in short
    assert short.count(f"\n{stem}-") == 20
    assert short.count("kafka-configs.sh") == 10
    assert "and 40 more (--all, or -o json)" in short
    assert f"{stem}-00, {stem}-01, {stem}-02, {stem}-03 and 46 more: segment.ms (7d) is longer" in short
    whole = world.cli("advise", f"{stem}-*", "--all", check=0).out
    assert whole.count(f"\n{stem}-") == 50
    assert whole.count("kafka-configs.sh") == 50


def test_advise_covers_internal_topics_only_when_named(advised: Shop) -> None:
    world, names = advised
    world.commit("adv-any", names["good"], 1)
    assert "__consumer_offsets" not in world.cli("advise", "-o", "csv", check=0).out
    assert advice(world, "__consumer_offsets")["advice"]["policy_entry"] is None
