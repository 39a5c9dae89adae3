"""Plans and trims of a real cluster, looked back at and decided again without it."""

from __future__ import annotations

from pathlib import Path

from tests.support.world import HOUR, World, run_cli


def test_recorded_plan_and_trim_are_verified_replayed_and_drawn_without_the_cluster(
    world: World, tmp_path: Path
) -> None:
    topic = world.filled([30 * HOUR] * 10, {"a": 8})
    policy, forced, frozen = (tmp_path / f"{name}.yaml" for name in ("policy", "forced", "frozen"))
    entry = f"version: 1\ntopics:\n- match: {topic}\n"
    policy.write_text(f"{entry}  retention.commitoffset.enable: true\n  retention.commitoffset.hours: 24\n")
    forced.write_text(f"{entry}  retention.ms: 24h\n")
    frozen.write_text(f"{entry}  hold: legal\n")
    for file in (policy, forced):
        assert "recorded as " in world.cli("plan", "-p", str(file), "--evidence", check=0).err
    world.cli("trim", "-p", str(policy), "--yes", check=0)
    assert world.ends(topic) == (8, 10)
    here = ("--state-dir", str(world.state_dir), "-b", "localhost:1")  # nothing listens there
    found = run_cli("replay", "-p", str(policy), *here, "-o", "json", check=0).json()
    plans, trim = found["runs"][:2], found["runs"][2]
    assert {name: amount for name, amount in found["totals"].items() if amount} == {"earlier": 8, "partitions": 1}
    unread = run_cli("replay", "-p", str(forced), *here, check=3)
    assert "2 records that a group had not read" in unread.err
    kept = run_cli("replay", "-p", str(frozen), *here, "-o", "json", check=0).json()
    assert (kept["totals"]["never"], kept["totals"]["held"]) == (8, 1)
    said = run_cli("verify", *found["runs"], *here, check=0).out
    assert said.count("proven") == 3
    assert f"{plans[0]}: proven. 1 decision of a plan made again" in said
    drawn = run_cli("explain", f"{topic}:0", "--run", trim, *here, check=0).out
    assert f"As run {trim} saw it" in drawn
    assert "8 records" in drawn
    assert run_cli("explain", topic, "--at", "2030-01-01T00:00:00Z", *here, "-o", "json", check=0).json()["run"] == trim
    assert run_cli("history", f"{topic}:0", *here, "-o", "json", check=0).json()["runs"][0]["run"] == trim
    assert run_cli("history", f"{topic}:1", *here, "-o", "json", check=0).json()["runs"] == []
    run_cli("explain", f"{topic}:7", "--run", trim, *here, check=1)
