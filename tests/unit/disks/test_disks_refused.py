"""Rules of disks where they are not carried out (several clusters): refused, never ignored; and in saved plans."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.disks.disk import Blocker, Disk, DiskOutcome, Room, outcome_as_json
from retention_cli.engines.fleet.plan import FleetPlan
from retention_cli.engines.fleet.saved import read_fleet
from retention_cli.plan.parquet import ParquetPlans, read_plan, write_plan
from retention_cli.plan.value import as_json, plan_text
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection
from retention_cli.trim.run import check_saved
from tests.support.plans import EVERY, KINDS, saved
from tests.support.world import run_cli

ORDERS = TopicPartition("orders", 0)
FULL = DiskOutcome(
    Disk(1, ("/a",), Room(1000, 650, 500), {ORDERS: 500}),
    50.0,
    excess_bytes=150,
    freed_bytes=100,
    short_bytes=50,
    level_ms=7,
    in_the_way=[Blocker(ORDERS, 50, "G2", "group:billing")],
)
DARK = DiskOutcome(Disk(2, ("/a",), Unknown.because("disk", "offline"), {}), 50.0, Unknown.because("disk", "offline"))
MADE = replace(EVERY, disks=(FULL, DARK))


def policy_with(disks: str = "", entry: str = "retention.ms: 1d") -> Policy:
    return parse_policy(
        f"version: 1\n{disks and f'disks: {disks}'}\ntopics:\n  - match: '*'\n    {entry}\n", "p.yaml", ""
    )


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        (policy_with("{log.retention.disk.usage.percent: 80}"), True),
        (policy_with("{watermarks: [{percent: 75, factor: 0.5, minimum: 1d}]}"), True),
        (policy_with(entry="retention.bytes: 1GiB"), True),
        (policy_with(entry="retention.topic.bytes: 1GiB"), True),
        (policy_with(entry="granularity: segment"), True),
        (policy_with(""), False),
        (policy_with("{capacity: 1TiB}"), False),
        (policy_with("{log.retention.disk.usage.percent: 100}"), False),
    ],
)
def test_policy_with_a_ceiling_watermarks_sizes_or_segments_needs_disks(policy: Policy, needs: bool) -> None:
    assert policy.needs_disks is needs


# -- the command line ----------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text("version: 1\ntopics: [{match: '*', retention.ms: 1d}]\n")
    lines = ["version: 1", "policy: p.yaml", "clusters:"]
    lines += [f"  - {{name: {name}, bootstrap-server: 'localhost:{port}'}}" for name, port in (("eu", 1), ("us", 2))]
    (tmp_path / "fleet.yaml").write_text("\n".join(lines))
    return tmp_path


def ran(folder: Path, *arguments: str) -> tuple[int, str]:
    with contextlib.chdir(folder):
        done = run_cli(*arguments, HOME=str(folder), KRETAIN_STATE_DIR=str(folder / "state"), COLUMNS="200")
    return done.code, done.err


ONE = "is for one cluster: name it with --cluster NAME"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan --fleet fleet.yaml --inventory i", f"--inventory {ONE}"),
        ("trim --fleet fleet.yaml --inventory i --dry-run", f"--inventory {ONE}"),
        ("trim --fleet fleet.yaml --wait --yes", f"--wait {ONE}"),
        ("trim -b localhost:1 -p p.yaml --wait --dry-run", "--wait has nothing to wait for in a --dry-run"),
    ],
)
def test_disk_options_that_contradict_each_other_are_a_usage_error(here: Path, arguments: str, says: str) -> None:
    code, said = ran(here, *arguments.split())
    assert code == 2
    assert says in said


def test_missing_inventory_in_a_fleet_fails_only_its_cluster(here: Path) -> None:
    (here / "p.yaml").write_text("version: 1\ndisks: {inventory: 'i*'}\ntopics: [{match: '*', retention.ms: 1d}]\n")
    code, said = ran(here, "plan", "--fleet", "fleet.yaml")
    assert code != 0
    assert "eu: " in said
    assert "disks.inventory: i* matches no file" in said


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("inventory/*.parquet", "disks.inventory: inventory/*.parquet matches no file"),
        ("inventory/b.parquet", "inventory/b.parquet"),
        ("inventory", "no inventory"),
        ("['inventory/a?.parquet', '{there}/*.gone']", "inventory/a?.parquet matches no file"),
        ("'{there}/*.gone'", "*.gone matches no file"),
        ("broken.*", "broken.parquet"),
    ],
)
def test_missing_or_broken_inventory_of_the_policy_is_an_error(here: Path, named: str, says: str) -> None:
    """From the policy file's folder, wherever kretain is started; nothing is asked of a cluster before."""
    folder, elsewhere = here / "policies", here / "elsewhere"
    (folder / "inventory").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "broken.parquet").write_bytes(b"broken")
    named = named.replace("{there}", str(folder))
    text = f"version: 1\ndisks:\n  inventory: {named}\ntopics: [{{match: '*', retention.ms: 1d}}]\n"
    (folder / "p.yaml").write_text(text)
    code, said = ran(elsewhere, "plan", "-b", "localhost:1", "-p", "../policies/p.yaml")
    assert code == 1
    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize("named", ["[]", "''", "7", "[a, 7]"])
def test_invalid_inventory_value_is_an_error_with_its_line(named: str) -> None:
    with pytest.raises(PolicyError, match=r"p.yaml:2.*inventory.*give a file, a folder or a glob"):
        policy_with(f"{{inventory: {named}}}")


def test_one_cluster_of_a_fleet_accepts_an_inventory(here: Path) -> None:
    """It goes on to the inventory, which is not there."""
    code, said = ran(here, "plan", "--fleet", "fleet.yaml", "--cluster", "eu", "--inventory", "nowhere.parquet")
    assert code == 1
    assert "nowhere.parquet" in said


# -- saved ---------------------------------------------------------------------------------------------


def test_plan_with_disks_is_saved_with_them_and_read_back_without(tmp_path: Path) -> None:
    """They are for people and scripts; a trim decides afresh, so that nothing goes by what a file says of a disk."""
    text, columns = tmp_path / "plan.json", tmp_path / "plan.parquet"
    text.write_text(plan_text(MADE), encoding="utf-8")
    write_plan(columns, MADE)
    head = ParquetPlans(columns).head
    assert head["disks"] == json.loads(plan_text(MADE))["disks"] == [outcome_as_json(FULL), outcome_as_json(DARK)]
    assert {**head, "partitions": as_json(MADE)["partitions"]} == as_json(MADE)
    assert read_plan(columns) == read_plan(text) == EVERY
    check_saved(read_plan(columns), Selection(policy_with()), MADE.created_at_ms, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_fleet_plan_with_disks_is_saved_and_read_back_without_them(tmp_path: Path, kind: str) -> None:
    fleet = FleetPlan(MADE.created_at_ms, "fleet.yaml", None, {"eu": MADE})
    assert read_fleet(saved(tmp_path, fleet, kind)).plans["eu"]() == EVERY
