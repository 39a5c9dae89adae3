"""The commands as scripts and people use them: exit codes, what goes where, one-off rules (docs/commands.md)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import EmbeddedKafka, kafka_tool
from tests.support.says import json_of, pick, rows_of, says
from tests.support.terminal import Terminal
from tests.support.world import DAY, HOUR, OLD, World, consumed, run_cli, written

Shop = tuple[World, str, str, Path]


@pytest.fixture(scope="module")
def shop(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One topic of three partitions: one trims, one is held, one keeps; and a policy for it."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("cli") / "state")
    topic = world.filled(OLD, {"billing": {0: 7, 1: 4, 2: 0}, "stray": {0: 9}}, 2, stem="shop", partitions=3)
    policy = written(tmp_path_factory.mktemp("policy") / "policy.yaml", consumed(topic))
    return world, topic, f"{topic}-billing", policy


@pytest.fixture
def world(shop: Shop) -> World:
    return shop[0]


@pytest.mark.thorough
def test_plan_delete_records_format_is_accepted_by_kafkas_tool(world: World, tmp_path: Path) -> None:
    """Read by Kafka's own parser, against the cluster, for a topic of its own."""
    topic = world.filled(OLD, {"a": 6})
    wanted = written(
        tmp_path / "delete.json",
        world.cli("plan", topic, "--consumed-after", "1h", "-o", "delete-records", check=0).out,
    )
    done = subprocess.run(
        kafka_tool(*("DeleteRecordsCommand", "--bootstrap-server", world.bootstrap, "--offset-json-file", str(wanted))),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"{topic}-0\tlow_watermark: 6" in done.stdout
    assert world.ends(topic) == (6, 10)


def trim_in_a_terminal(world: World, *arguments: str) -> Terminal:
    return Terminal(
        [
            *(sys.executable, "-m", "kretain", "trim", *arguments),
            *("-b", world.bootstrap, "--state-dir", str(world.state_dir)),
        ],
        columns=100,
    )


def test_trim_without_a_terminal_needs_yes(world: World, topic: str) -> None:
    done = world.cli("trim", topic, "--consumed-after", "1h", check=6)
    assert "--yes" in done.err
    assert (done.out, world.ends(topic)) == ("", (0, 10))


def test_saved_plan_is_trimmed_end_to_end(world: World, topic: str, tmp_path: Path) -> None:
    rules, saved = (topic, "--consumed-after", "1h"), tmp_path / "plan.json"
    world.cli("plan", *rules, "--out", str(saved), check=0)
    assert json.loads(saved.read_text())["policy"]["flags"] == {"--consumed-after": HOUR}
    assert "--consumed-after" in world.cli("trim", "--plan", str(saved), "--yes", check=6).err
    trim = ("trim", *rules, "--plan", str(saved), "--yes", "-o", "json")
    done, again = (world.cli(*trim, check=0).json() for _ in range(2))
    assert [one["partitions"][0]["outcome"] for one in (done, again)] == ["trimmed", "unchanged"]
    assert done["run"] in [run["run"] for run in world.cli("history", "-o", "json", check=0).json()["runs"]]
    one = world.cli("history", "--run", done["run"], "-o", "json", check=0).json()
    assert [(row["from"], row["target"], row["outcome"]) for row in one["partitions"]] == [(0, 8, "trimmed")]


@pytest.mark.parametrize(
    ("answer", "code", "start"),
    [
        ("y\n", 0, 8),
        ("\n", 6, 0),
        *(pytest.param(one, 6, 0, marks=pytest.mark.thorough) for one in ("n\n", "\x04")),
    ],
)
def test_trim_in_a_terminal_asks_and_names_unread_records(
    world: World, topic: str, answer: str, code: int, start: int
) -> None:
    terminal = trim_in_a_terminal(world, topic, "--consumed-after", "1h")
    shown = terminal.end(("[y/N]", answer), code=code)
    assert f"from 1 partition of {topic} in cluster" in " ".join(shown.split())
    assert "\x1b[" in terminal.shown, "a terminal gets color"
    assert world.ends(topic)[0] == start


def test_trim_over_a_limit_is_refused_before_it_asks(shop: Shop, topic: str, tmp_path: Path) -> None:
    world = World(shop[0].bootstrap, tmp_path / "state")
    policy = written(tmp_path / "p.yaml", consumed(topic).replace("version: 1", "version: 1\nlimits: {max.records: 7}"))
    shown = trim_in_a_terminal(world, "-p", str(policy)).end(code=6)
    says(shown, "8 records are more than limits.max.records, 7", never=["[y/N]"])
    assert world.ends(topic) == (0, 10)


def test_confirmation_shows_only_the_selected_partitions(shop: Shop, tmp_path: Path) -> None:
    """Though stdout is a file, and -q says nothing else."""
    world = World(shop[0].bootstrap, tmp_path / "state")
    topic = world.filled(OLD, {"a": 8}, 2)
    script = shlex.join(
        [
            *(sys.executable, "-m", "kretain", "trim", topic, "--consumed-after", "1h", "--max-partitions", "1"),
            *("-q", "-b", world.bootstrap, "--state-dir", str(world.state_dir)),
        ]
    )
    shown = Terminal(["sh", "-c", f"{script} > {tmp_path / 'out'}"]).end(("[y/N]", "y\r"))
    says(" ".join(shown.split()), f"{topic}-0", f"from 1 partition of {topic} in", never=[f"{topic}-1"])
    assert [world.ends(topic, partition)[0] for partition in (0, 1)] == [8, 0]
    assert f"{topic}-0" in (tmp_path / "out").read_text()


@pytest.mark.parametrize(("typed", "code"), [("y", 6), pytest.param("prod", 0, marks=pytest.mark.thorough)])
def test_context_with_confirm_wants_its_name_typed(
    shop: Shop, topic: str, tmp_path: Path, typed: str, code: int
) -> None:
    world = shop[0]
    config = written(
        tmp_path / "config.yaml", f"contexts: {{prod: {{bootstrap-server: '{world.bootstrap}', confirm: name}}}}\n"
    )
    command = [sys.executable, "-m", "kretain", "trim", topic, "--consumed-after", "1h", "--context", "prod"]
    terminal = Terminal([*command, "--state-dir", str(tmp_path)], environ={**os.environ, "KRETAIN_CONFIG": str(config)})
    terminal.end(("To continue, type the cluster's name, prod:", f"{typed}\r"), code=code)
    assert world.ends(topic)[0] == (8 if code == 0 else 0)


def test_offsets_shows_lag_by_floor_and_by_group(shop: Shop) -> None:
    world, topic, billing, policy = shop
    rows = world.cli("offsets", topic, "-o", "json", check=0).json()["partitions"]
    assert [(row["min_commit"], row["lag"], row["min_commit_by"]) for row in rows] == [
        (7, 3, f"group:{billing}"),
        (None, None, None),
        (0, 0, f"group:{billing}"),  # it is empty: who has no commit there misses nothing (F2)
    ]
    assert rows[1]["reasons"][0]["code"] == "F2"
    groups = world.cli("offsets", "-p", str(policy), "--groups", "-o", "json", check=0).json()["partitions"]
    assert [(row["partition"], row["group"], row["committed"], row["lag"]) for row in groups] == [
        (0, billing, 7, 3),
        (0, f"{topic}-stray", 9, 1),
        (1, billing, 4, 6),
        (2, billing, 0, 0),
    ]
    assert "3 partitions: 2 with a known floor, 1 unknown." in world.cli("offsets", topic, check=0).out


def test_offsets_of_all_topics_leaves_out_internal_ones_and_includes_compacted_ones(world: World) -> None:
    topic = world.filled(3, {"a": 2}, cleanup_policy="compact")
    rows = world.cli("offsets", "-o", "csv", check=0).out
    assert ("__consumer_offsets" in rows, f"{topic},0," in rows) == (False, True)
    assert "__consumer_offsets" in world.cli("offsets", "__consumer_offsets", "-o", "csv", check=0).out
    assert world.cli("offsets", topic, "-o", "json", check=0).json()["partitions"][0]["min_commit"] == 2


def test_explain_draws_the_log_with_reasons(shop: Shop) -> None:
    world, topic, billing, policy = shop
    done = world.cli("explain", f"{topic}:0", "-p", str(policy), check=0).out
    says(
        done,
        "S 0",
        "floor 7",
        "R1 7",
        "trim 7",
        "H 10",
        f"every consumer that counts has read them (group:{billing} is furthest behind)",
    )
    as_json = world.cli("explain", topic, "-p", str(policy), "-o", "json", check=0).json()["partitions"]
    assert [row["action"] for row in as_json] == ["trim", "hold", "keep"]
    (bound,) = as_json[0]["bounds"]
    assert bound.pop("before").endswith("Z")
    assert bound == {"rule": "consumed", "code": "R1", "asked": 7, "allowed": 7, "limited_by": None, "reasons": []}
    assert "no partition 9" in world.cli("explain", f"{topic}:9", "-p", str(policy), check=1).err


def test_policy_check_against_a_cluster_names_missing_groups_and_unmatched_rules(shop: Shop, tmp_path: Path) -> None:
    world, topic, _, policy = shop
    good = world.cli("policy", "check", "-p", str(policy), check=0)
    says(good.out + good.err, "OK: 1 entry matches 1 topic", "groups.require is not set")
    named = written(tmp_path / "named.yaml", policy.read_text() + f"\ngroups: {{require: ['{topic}-biling']}}\n")
    absent = world.cli("policy", "check", "-p", str(named), check=0).err.replace("\n", " ")
    assert f"no group {topic}-biling; did you mean {topic}-billing?" in absent
    journal = world.topic("journal", retention_ms="-1")
    aged = written(tmp_path / "aged.yaml", f"version: 1\ntopics: [{{match: '{journal[:-1]}*', retention.ms: 7d}}]\n")
    for command in (["policy", "check"], ["plan"]):
        says(
            " ".join(world.cli(*command, "-p", str(aged), check=0).err.split()),
            f"{journal}: the topic's own retention.ms is -1 (kept forever), and only a pattern",
        )
    short = world.topic(retention_ms=str(HOUR))
    bad = written(
        tmp_path / "bad.yaml",
        f"version: 1\ntopics:\n  - match: {short}\n    retention.commitoffset.enable: true\n    retention.commitoffset.hours: 2\n"
        "  - match: nothing-*\n    retention.ms: 1d\n",
    )
    says(
        world.cli("policy", "check", str(bad), check=1).err,
        f"{bad}:5: retention.commitoffset.hours: {short}: retention.commitoffset is 2 h",
        "1 h",
        f"{bad}:6: match nothing-* matches no topic",
    )
    # In a plan the entry that matches nothing is a warning, and the topic's R1 is unknown.
    plan = world.cli("plan", "-p", str(bad), "-o", "json", check=0)
    assert "nothing-* matches no topic" in plan.err
    assert plan.json()["partitions"][0]["action"] == "keep"


def test_doctor_checks_everything_and_changes_nothing(shop: Shop) -> None:
    world, topic, _, policy = shop
    done = world.cli("doctor", "-p", str(policy), "-o", "json", check=0).json()
    assert set(done["commands"]) == {"plan", "trim", "offsets", "explain", "groups"}
    assert "missing" not in done["commands"].values()
    says(
        " ".join(check["text"] for check in done["checks"]),
        "DESCRIBE on the cluster",
        "DELETE on every topic selected (1)",
        "all brokers support the required APIs",
        "not verified",
    )
    assert "works" in world.cli("doctor", topic, check=0).out


def test_flags_override_variables_and_variables_the_context(shop: Shop, tmp_path: Path) -> None:
    world, topic, _, policy = shop
    (tmp_path / "client.properties").write_text("client.id=from-the-file\nsasl.password=hunter2\n")
    config = written(
        tmp_path / "config.yaml",
        f"contexts:\n  prod:\n    bootstrap-server: {world.bootstrap}\n    policy: {policy}\n    command-config: client.properties\n"
        "    timeout: 20s\n  dead: {bootstrap-server: 'localhost:1', timeout: 1s}\ndefault-context: dead\n",
    )
    dead_by_default = {"KRETAIN_POLICY": str(policy)}
    by_variables = {"KRETAIN_CONTEXT": "prod", "KRETAIN_TIMEOUT": "9s"}
    of_prod = (f"bootstrap.servers = {world.bootstrap} (context prod)", "timeout = 20 s (context prod)")
    for arguments, variables, code, said in (
        (("--context", "prod"), {}, 0, (topic, *of_prod, "sasl.password = ********")),
        ((), dead_by_default, 1, ("localhost:1",)),
        ((), by_variables, 0, ("timeout = 9 s (KRETAIN_TIMEOUT)",)),
        (("--timeout", "8s"), by_variables, 0, ("timeout = 8 s (flag)",)),
        (("-b", world.bootstrap), dead_by_default, 0, (topic,)),
        (("--context", "prd"), {}, 1, ("did you mean prod?",)),
    ):
        given = {"KRETAIN_CONFIG": str(config), **variables}
        done = run_cli("plan", "-v", *arguments, "--state-dir", str(tmp_path / "state"), check=code, **given)
        says(done.out + done.err, *said, never=["hunter2"])
    config.write_text("contexts:\n  prod: {bootstrap-sever: x}\n")
    wrong = run_cli("plan", "--context", "prod", check=1, KRETAIN_CONFIG=str(config)).err
    assert "did you mean bootstrap-server?" in wrong


# -- one-off rules over a context's policy (docs/policy.md) ------------------------------------


FLAGS = ("--older-than", "99999999d")


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, str, Path, dict[str, Any]]:
    """A topic that its policy's R1 would trim, its policy, and the variable that makes it a context's."""
    folder = tmp_path_factory.mktemp("one-off")
    world = World(kafka.bootstrap, folder / "state")
    topic = world.filled(OLD, {"billing": 7}, stem="flights")
    policy = written(folder / "prod.yaml", consumed(topic))
    config = written(
        folder / "config.yaml",
        f"contexts:\n  prod: {{bootstrap-server: '{world.bootstrap}', policy: prod.yaml}}\ndefault-context: prod\n",
    )
    return world, topic, policy, {"KRETAIN_CONFIG": str(config)}


Flights = tuple[World, str, Path, dict[str, Any]]


def test_one_off_flag_replaces_the_policys_rules(flights: Flights) -> None:
    """The policy alone would trim seven records; the flag asks for what is older than a thousand centuries."""
    world, topic, policy, prod = flights
    assert [row["trim_to"] for row in json_of(world, "plan", **prod)["partitions"]] == [7]
    made = json_of(world, "plan", topic, *FLAGS, **prod)
    assert [pick(row, "action", "min_commit") for row in made["partitions"]] == [("keep", 7)]
    assert made["policy"]["rules"] == "one-off"
    table = world.cli("plan", topic, *FLAGS, "--detailed-exitcode", check=0, **prod).out
    off = f"One-off rules: --older-than 99999999d. The rules of {policy} are off for this run; its guards"
    says(table, off, "No changes. 1 partition up to date.")
    world.cli("trim", topic, *FLAGS, "--yes", check=0, **prod)
    assert world.ends(topic) == (0, 10)


def test_saved_plan_needs_its_one_off_rules(flights: Flights, tmp_path: Path) -> None:
    """By the file seven records could go, by the flags none; the plan says ten, by another's hand."""
    world, topic, policy, _ = flights
    saved = tmp_path / "plan.json"
    base = ("-p", str(policy))
    world.cli("plan", topic, "--older-than", "1d", "--unconsumed", "trim", *base, "--out", str(saved), check=0)
    for others in ((), ("--older-than", "2d", "--unconsumed", "trim"), ("--older-than", "1d")):
        said = world.cli("trim", topic, *others, *base, "--plan", str(saved), "--yes", check=6).err
        assert "the plan was made with --older-than 1d --unconsumed trim: give exactly these rules" in said
    saved.write_text(saved.read_text().replace(str(DAY), str(99_999_999 * DAY)))
    rows = rows_of(world, "trim", topic, *FLAGS, "--unconsumed", "trim", *base, "--plan", str(saved), "--yes")
    assert {name: row["outcome"] for name, row in rows.items()} == {topic: "unchanged"}
    assert world.ends(topic) == (0, 10)


def test_cluster_flag_with_a_contexts_policy_is_mentioned(flights: Flights) -> None:
    world, topic, policy, prod = flights
    told = f"kretain: the cluster is from -b, but the policy {policy} is from context prod: give -p FILE for another, or --no-policy\n"
    for command in (("plan", topic), ("trim", "--dry-run")):
        assert world.cli(*command, check=0, **prod).err.count(told) == 1
    assert world.cli("policy", "show", topic, check=0, **prod).err == told
    for silent in (("plan", "-q"), ("plan", "-p", str(policy)), ("policy", "check", str(policy)), ("history",)):
        assert told not in world.cli(*silent, check=0, **prod).err
    assert world.cli("plan", "-q", check=0, **prod).err == ""
