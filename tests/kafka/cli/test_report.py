"""``kretain report`` of a real plan and of real trims, with a group whose name is markup."""

from __future__ import annotations

import re
from pathlib import Path

import html5lib

from tests.support.world import HOUR, World

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"


def tags(page: Path) -> set[str]:
    root = html5lib.parse(page.read_text(encoding="utf-8"), namespaceHTMLElements=False)
    return {one.tag.rpartition("}")[2] for one in root.iter() if isinstance(one.tag, str)}


def test_report_renders_a_plan_and_its_trim(world: World, tmp_path: Path) -> None:
    topic, held = world.topic("shown"), world.topic("held")
    world.produce(topic, [2 * HOUR] * 40)
    world.produce(held, [2 * HOUR] * 40)
    world.commit(HOSTILE, topic, 25)
    policy, plan = tmp_path / "policy.yaml", tmp_path / "plan.parquet"
    policy.write_text(
        "version: 1\n"
        f"topics: [{{match: [{topic}, {held}], retention.commitoffset.enable: true, retention.commitoffset.ms: 1h}}]\n",
        encoding="utf-8",
    )
    try:
        world.cli("disk", check=0)  # it remembers how full they are
        world.cli("plan", "-p", str(policy), "--out", str(plan), check=0)
        page, past = tmp_path / "plan.html", tmp_path / "past.html"
        foretold = tmp_path / "forecast.json"
        foretold.write_text(world.cli("forecast", "-p", str(policy), "-o", "json", check=0).out, encoding="utf-8")
        given = (str(plan), "--forecast", str(foretold))
        said = world.cli("report", *given, "--out", str(page), check=0)
        assert said.out == ""
        text = page.read_text(encoding="utf-8")
        assert "25 records to trim" in text
        assert "&lt;script&gt;alert(1)" in text
        assert r"\x1b[2J\u202e" in text
        assert re.search(rf"kretain groups[^<]*-p \S*{policy.name}", text)
        assert "Disks over time" in text
        assert "2 topics: 0 steady" in text
        world.cli("trim", topic, "--consumed-after", "1h", "--yes", check=0)
        assert world.ends(topic)[0] == 25
        before = {one: one.read_bytes() for one in world.state_dir.rglob("*") if one.is_file()}
        world.cli("report", "--out", str(past), check=0)
        assert {one: one.read_bytes() for one in world.state_dir.rglob("*") if one.is_file()} == before
        assert "1 trim of 1 cluster: 25 records went." in past.read_text(encoding="utf-8")
        for one in (page, past):
            assert "svg" in tags(one)
            assert not tags(one) & {"script", "img", "link", "iframe", "a"}
    finally:
        world.delete_group(HOSTILE)


def test_report_of_a_file_that_is_no_plan_fails_in_one_line(tmp_path: Path, world: World) -> None:
    file, out = tmp_path / "plan.json", tmp_path / "page.html"
    file.write_text('{"format": "kretain.plan/v1"}', encoding="utf-8")
    said = world.cli("report", str(file), "--out", str(out), check=1)
    assert "is not a valid plan file" in said.err
    assert len(said.err.splitlines()) == 1
    assert not out.exists()
    empty = world.cli("report", "--out", str(out), check=0)
    assert "written to" in empty.err
    assert "No trims yet." in out.read_text(encoding="utf-8")
