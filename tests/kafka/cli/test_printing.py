"""What commands say where nothing can be printed; pages and replays. Formats: ``tests/unit/render``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import html5lib
import pytest

from tests.support.says import says
from tests.support.terminal import CLOSED, FULL, UNREAD, run_into
from tests.support.world import HOUR, OLD, World, consumed, run_cli, written


@pytest.fixture
def topic(world: World) -> str:
    """Ten old records in each of two partitions; a group has read eight of the first, and never the second."""
    return world.filled(OLD, {"a": {0: 8}}, 2)


def arguments(world: World, command: str, topic: str, *more: str) -> list[str]:
    return [
        command,
        topic,
        "--consumed-after",
        "1h",
        *["-b", world.bootstrap, "--state-dir", str(world.state_dir)],
        *more,
    ]


def run_of(world: World) -> dict:
    (run,) = world.cli("history", "-o", "json", check=0).json()["runs"]
    return run


@pytest.mark.parametrize(
    ("outlet", "why", "output"), [(FULL, "No space left on device", "table"), (CLOSED, "stdout is closed", "json")]
)
def test_lost_report_after_a_trim_exits_partial_and_names_the_deletes(
    world: World, topic: str, outlet: str, why: str, output: str
) -> None:
    done = run_into(outlet, *arguments(world, "trim", topic, "--yes", "-o", output, "-q"))
    run = run_of(world)
    assert (done.code, done.err) == (
        5,
        (
            f"kretain: the result could not be printed: {why}; run {run['run']}: 1 partition trimmed; 8 records "
            f"trimmed (kretain history --run {run['run']})\n"
        ),
    )
    assert (world.ends(topic)[0], run["records"], run["exit"]) == (8, 8, 0), "the log has what was done"


@pytest.mark.parametrize(
    ("command", "more", "code"),
    [
        ("plan", ["--detailed-exitcode"], 3),
        ("plan", ["--detailed-exitcode", "--fail-on-hold", "-o", "json"], 4),
        ("trim", ["--yes"], 0),
        ("trim", ["--yes", "--fail-on-hold", "-o", "csv"], 4),
        ("trim", ["--yes", "--wait"], 5),
        ("trim", [], 6),
    ],
)
def test_closed_pipe_keeps_the_exit_code(world: World, topic: str, command: str, more: list[str], code: int) -> None:
    done = run_into(UNREAD, *arguments(world, command, topic, *more))
    assert done.code == code, done.err
    assert "Broken pipe" not in done.err
    assert world.ends(topic)[0] == (8 if command == "trim" and code != 6 else 0)


BREAKING = """
import sys
from kretain.__main__ import main
from retention_cli.brokers.errors import BrokerError

def fail(*_, **__):
    raise {error}

import {module} as module
module.{name} = fail
sys.argv[0] = "kretain"
main()
"""
"""The real command, in which one thing fails."""

WAITING = ("kretain.flows.trims", "waited")
NOTING = ("retention_cli.trim.journal", "AuditJournal.result")


@pytest.mark.parametrize(
    ("where", "error", "code", "words"),
    [
        (WAITING, 'BrokerError("no broker answered")', 5, "kretain: no broker answered\n"),
        (WAITING, "KeyboardInterrupt", 130, "kretain: interrupted\nkretain: before that: run "),
        (NOTING, 'KeyError("x")', 5, "kretain: internal error: KeyError: 'x'"),
    ],
)
def test_failure_after_a_delete_is_partial_and_ctrl_c_stays_130(
    world: World, topic: str, where: tuple[str, str], error: str, code: int, words: str
) -> None:
    script = BREAKING.format(module=where[0], name=where[1], error=error)
    program = ["-c", script, *arguments(world, "trim", topic, "--yes", "--wait", "-o", "json", "-q")]
    done = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=120, check=False)
    says(done.stderr, words, never=["Traceback"])
    assert (done.returncode, world.ends(topic)[0]) == (code, 8), done.stderr
    if code == 130:
        assert "1 partition trimmed; 8 records trimmed" in done.stderr
    else:
        report = json.loads(done.stdout)
        assert (report["totals"]["trimmed"], report["partitions"][0]["log_start"]) == (1, 8), "the report is there"


def test_interrupted_trim_with_a_lost_report_exits_as_interrupted(world: World, topic: str) -> None:
    script = BREAKING.format(module=WAITING[0], name=WAITING[1], error="KeyboardInterrupt")
    done = run_into(FULL, *arguments(world, "trim", topic, "--yes", "--wait"), program=("-c", script))
    assert done.code == 130
    assert "1 partition trimmed; 8 records trimmed" in done.err


def test_fleet_trim_with_a_lost_report_names_each_clusters_deletes(world: World, topic: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(consumed(topic))
    (tmp_path / "fleet.yaml").write_text(
        "version: 1\npolicy: policy.yaml\nclusters:\n"
        f"  - {{name: eu, bootstrap-server: '{world.bootstrap}'}}\n"
        "  - {name: down, bootstrap-server: '127.0.0.1:1', timeout: 1s}\n"
    )
    fleet = ["trim", "--fleet", str(tmp_path / "fleet.yaml"), "--state-dir", str(world.state_dir), "--yes", "-q"]
    done = run_into(FULL, *fleet)
    assert done.code == 5, done.err
    run = run_of(world)["run"]
    assert done.err.splitlines()[-1] == (
        f"kretain: the result could not be printed: No space left on device; eu: run {run}: 1 partition trimmed; "
        f"8 records trimmed (kretain history --run {run})"
    )


# -- pages and replays, without the cluster ----------------------------------------------------


HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"


def tags(page: Path) -> set[str]:
    root = html5lib.parse(page.read_text(encoding="utf-8"), namespaceHTMLElements=False)
    return {one.tag.rpartition("}")[2] for one in root.iter() if isinstance(one.tag, str)}


def test_report_renders_a_plan_and_its_trim(world: World, tmp_path: Path) -> None:
    topic, held = (world.filled([2 * HOUR] * 40, stem=stem) for stem in ("shown", "held"))
    world.commit(HOSTILE, topic, 25)
    plan = tmp_path / "plan.parquet"
    policy = written(
        tmp_path / "policy.yaml",
        "version: 1\n"
        f"topics: [{{match: [{topic}, {held}], retention.commitoffset.enable: true, retention.commitoffset.ms: 1h}}]\n",
    )
    try:
        world.cli("disk", check=0)  # it remembers how full they are
        world.cli("plan", "-p", str(policy), "--out", str(plan), check=0)
        page, past = tmp_path / "plan.html", tmp_path / "past.html"
        foretold = written(
            tmp_path / "forecast.json", world.cli("forecast", "-p", str(policy), "-o", "json", check=0).out
        )
        given = (str(plan), "--forecast", str(foretold))
        assert world.cli("report", *given, "--out", str(page), check=0).out == ""
        text = page.read_text(encoding="utf-8")
        says(
            text,
            "25 records to trim",
            *("&lt;script&gt;alert(1)", r"\x1b[2J\u202e"),
            "Disks over time",
            "2 topics: 0 steady",
        )
        assert re.search(rf"kretain groups[^<]*-p \S*{policy.name}", text)
        world.cli("trim", topic, "--consumed-after", "1h", "--yes", check=0)
        assert world.ends(topic)[0] == 25
        before = {one: one.read_bytes() for one in world.state_dir.rglob("*") if one.is_file()}
        world.cli("report", "--out", str(past), check=0)
        assert {one: one.read_bytes() for one in world.state_dir.rglob("*") if one.is_file()} == before
        assert "1 trim of 1 cluster: 25 records deleted." in past.read_text(encoding="utf-8")
        for one in (page, past):
            assert tags(one) & {"svg", "script", "img", "link", "iframe", "a"} == {"svg"}
    finally:
        world.delete_group(HOSTILE)


def test_recorded_plan_and_trim_are_verified_replayed_and_drawn_without_the_cluster(
    world: World, tmp_path: Path
) -> None:
    topic = world.filled([30 * HOUR] * 10, {"a": 8})
    policy, forced, frozen = (
        written(tmp_path / f"{name}.yaml", f"version: 1\ntopics:\n- match: {topic}\n  {rules}\n")
        for name, rules in (
            ("policy", "retention.commitoffset.enable: true\n  retention.commitoffset.hours: 24"),
            ("forced", "retention.ms: 24h"),
            ("frozen", "hold: legal"),
        )
    )
    for file in (policy, forced):
        assert "recorded as " in world.cli("plan", "-p", str(file), "--evidence", check=0).err
        time.sleep(1)  # a run's name has the second that it began in, and runs are in the order of their names
    world.cli("trim", "-p", str(policy), "--yes", check=0)
    assert world.ends(topic) == (8, 10)
    here = ("--state-dir", str(world.state_dir), "-b", "localhost:1")  # nothing listens there
    found = run_cli("replay", "-p", str(policy), *here, "-o", "json", check=0).json()
    plans, trim = found["runs"][:2], found["runs"][2]
    assert {name: amount for name, amount in found["totals"].items() if amount} == {"earlier": 8, "partitions": 1}
    assert "2 records that a group had not read" in run_cli("replay", "-p", str(forced), *here, check=3).err
    kept = run_cli("replay", "-p", str(frozen), *here, "-o", "json", check=0).json()
    assert (kept["totals"]["never"], kept["totals"]["held"]) == (8, 1)
    said = run_cli("verify", *found["runs"], *here, check=0).out
    assert said.count("proven") == 3
    assert f"{plans[0]}: proven. 1 decision of a plan repeated" in said
    says(run_cli("explain", f"{topic}:0", "--run", trim, *here, check=0).out, f"As run {trim} saw it", "8 records")
    assert run_cli("explain", topic, "--at", "2030-01-01T00:00:00Z", *here, "-o", "json", check=0).json()["run"] == trim
    assert run_cli("history", f"{topic}:0", *here, "-o", "json", check=0).json()["runs"][0]["run"] == trim
    assert run_cli("history", f"{topic}:1", *here, "-o", "json", check=0).json()["runs"] == []
    run_cli("explain", f"{topic}:7", "--run", trim, *here, check=1)
