"""Plans and trims of a real cluster, looked back at without it: a page, and a replay."""

from __future__ import annotations

import re
import time
from pathlib import Path

import html5lib

from tests.support.says import says
from tests.support.world import HOUR, World, run_cli, written

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
