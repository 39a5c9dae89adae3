"""``notify`` on a real cluster: posts of a watch and a trim, and a webhook that hangs; the log as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.support.trims import OLD, read_topic
from tests.support.watching import policy_of, watching
from tests.support.webhook import Webhook
from tests.support.world import World, wait_until


def test_watch_posts_what_it_did_and_logs_json_lines(here: World) -> None:
    topic = read_topic(here)
    with Webhook() as hook:
        policy = policy_of(here, topic, more=f"notify: {{url: '{hook.url}'}}\n")
        with watching(here, policy, "--trim", "--interval", "1s", "--log-format", "json", "-v") as watcher:
            wait_until(lambda: hook.events() == ["trimmed"], "a post")
            policy.write_text(policy.read_text().replace("topics:", "limits: {max.records: 1}\ntopics:"))
            here.produce(topic, OLD)
            here.commit(f"{topic}-group", topic, 12)
            wait_until(lambda: hook.events() == ["trimmed", "refused"], "another", 30)
            assert watcher.end() == 0
    assert here.ends(topic)[0] == 7
    lines = [json.loads(line) for line in watcher.text.splitlines()]
    assert all(one.keys() >= {"time", "event", "text"} for one in lines)
    assert [one["event"] for one in lines if one["event"] in ("started", "stopped")] == ["started"] * 2 + ["stopped"]
    first = next(one for one in lines if one["event"] == "pass")
    assert first["planned"] == {"partitions": 1, "records": 7, "bytes": first["planned"]["bytes"]}
    assert first["trimmed"]["records"] == hook.bodies[0]["records"] == 7
    assert first["run"] == hook.bodies[0]["run"]
    assert first["cluster_id"] == hook.bodies[1]["cluster_id"]
    assert hook.bodies[0]["cluster"] == here.bootstrap
    assert any(one["event"] == "failed" and one["kind"] == "refused" for one in lines)
    assert any(one["event"] == "note" and "policy" in one["text"] for one in lines), "what -v prints"
    assert Webhook.PATH not in watcher.text
    found = "".join(path.read_text(errors="replace") for path in here.state_dir.rglob("*") if path.is_file())
    assert Webhook.PATH not in found, "neither in the audit log nor in the ledger"


def test_hanging_webhook_changes_nothing_of_a_trim(here: World, tmp_path: Path) -> None:
    topic = read_topic(here)
    with Webhook(status=None) as hook:
        policy = policy_of(here, topic, more=f"notify: {{url: '{hook.url}'}}\n")
        here.cli("trim", "-p", str(policy), "--dry-run", check=0)
        assert hook.bodies == []
        plan = here.cli("plan", "-p", str(policy), "-o", "json", "--out", str(tmp_path / "plan.json"), check=0)
        began = time.monotonic()
        done = here.cli("trim", "-p", str(policy), "--yes", "-o", "json", check=0)
        assert time.monotonic() - began < 15
        assert hook.events() == ["trimmed"]
        assert done.json()["totals"]["trimmed"] == 1
    assert here.ends(topic)[0] == 7
    assert Webhook.PATH not in plan.out + done.out + done.err
    with Webhook() as hook:
        policy = policy_of(here, topic, more=f"notify: {{url: '{hook.url}'}}\nlimits: {{max.records: 1}}\n")
        here.commit(f"{topic}-group", topic, 9)
        here.cli("trim", "-p", str(policy), "--yes", check=6)
        assert hook.events() == ["refused"]
        assert "limits.max.records" in hook.bodies[0]["text"]
