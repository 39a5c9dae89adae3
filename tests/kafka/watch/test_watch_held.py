"""A ``kretain watch`` that doubts its memory, log, clock or policy; that tells others, and gets a new certificate."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as ser

from tests.conftest import QUICK
from tests.support.client_files import PEM, key_pem, pair, properties, self_signed
from tests.support.clusters import EmbeddedKafka
from tests.support.http_server import Webhook
from tests.support.says import pick
from tests.support.secured import show_none
from tests.support.trims import read_topic
from tests.support.watching import PLAIN, policy_of, trimming, watching
from tests.support.world import HOUR, OLD, World, wait_until, written

pytestmark = pytest.mark.timeout(300)

JUMPS = f"""
import os, time
honest = time.time_ns
time.time_ns = lambda: honest() + (40 * 86400 * 10**9 if os.path.exists(os.environ["JUMP"]) else 0)
{PLAIN}"""


def test_unwritable_ledger_stops_the_watch(here: World) -> None:
    topic = read_topic(here, upto=4)
    with trimming(here, topic) as watcher:
        watcher.wait_for("trimmed 4 records")
        watcher.wait_passes(2)
        resource.prlimit(watcher.process.pid, resource.RLIMIT_FSIZE, (12_288, resource.RLIM_INFINITY))
        for group, offset in (("slow", 5), ("group", 9)):
            here.commit(f"{topic}-{group}", topic, offset)
            watcher.wait_passes(2)
        here.delete_group(f"{topic}-slow")
        watcher.wait_passes(2)
        assert here.ends(topic)[0] <= 5
        assert watcher.metrics()["kretain_failures_total", "state"] >= 2


def test_clock_set_ahead_forgets_no_group(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = here.state_dir.parent / "jump"
    monkeypatch.setenv("JUMP", str(flag))
    topic = read_topic(here, upto=9)
    here.commit(f"{topic}-slow", topic, 4)
    with trimming(here, topic, code=JUMPS) as watcher:
        watcher.wait_for("trimmed 4 records")
        here.delete_group(f"{topic}-slow")
        watcher.wait_passes(2)
        assert here.ends(topic)[0] == 4
        flag.touch()
        watcher.wait_for("this machine's clock was set ahead by 3,456,000 s")
        assert here.ends(topic)[0] == 4
        flag.unlink()
        watcher.wait_passes(1)
        assert here.ends(topic)[0] == 4


def delete_log(state_dir: Path) -> None:
    for name in ("audit.jsonl", "audit.head"):
        next(state_dir.glob(f"*/{name}")).unlink()


@pytest.mark.parametrize(
    ("kind", "delete"), [("local", delete_log), ("cluster", shutil.rmtree)], ids=["audit log", "state directory"]
)
def test_deleted_memory_of_the_day_does_not_reset_the_daily_limit(
    electing: World, kind: str, delete: Callable[[Path], None]
) -> None:
    topic = read_topic(electing)
    rules = f"state: {kind}\nlimits: {{max.records: 8}}\n"
    with trimming(electing, topic, "--standby-group", topic, more=rules) as watcher:
        watcher.wait_for("trimmed 7 records")
        watcher.wait_passes(1)
        delete(electing.state_dir)
        watcher.wait_passes(1)
        electing.commit(f"{topic}-group", topic, 10)
        watcher.wait_passes(3)
        assert electing.ends(topic)[0] <= 8


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
    assert here.ends(topic)[0] == 7
    lines = [json.loads(line) for line in watcher.text.splitlines()]
    assert all(one.keys() >= {"time", "event", "text"} for one in lines)
    assert [one["event"] for one in lines if one["event"] in ("started", "stopped")] == ["started"] * 2 + ["stopped"]
    first = next(one for one in lines if one["event"] == "pass")
    assert first["planned"] == {"partitions": 1, "records": 7, "bytes": first["planned"]["bytes"]}
    assert pick(hook.bodies[0], "records", "run", "cluster") == (7, first["run"], here.bootstrap)
    assert (first["trimmed"]["records"], first["cluster_id"]) == (7, hook.bodies[1]["cluster_id"])
    assert any((one["event"], one.get("kind")) == ("failed", "refused") for one in lines)
    assert any(one["event"] == "note" and "policy" in one["text"] for one in lines), "what -v prints"
    # neither printed, nor in the audit log, nor in the ledger
    files = [path.read_text(errors="replace") for path in here.state_dir.rglob("*") if path.is_file()]
    show_none([watcher.text, *files], Webhook.PATH)


def test_hanging_webhook_changes_nothing_of_a_trim(here: World, tmp_path: Path) -> None:
    topic = read_topic(here)
    with Webhook(status=None) as hook:
        by = ("-p", str(policy_of(here, topic, more=f"notify: {{url: '{hook.url}'}}\n")))
        here.cli("trim", *by, "--dry-run", check=0)
        assert hook.bodies == []
        plan = here.cli("plan", *by, "-o", "json", "--out", str(tmp_path / "plan.json"), check=0)
        began = time.monotonic()
        done = here.cli("trim", *by, "--yes", "-o", "json", check=0)
        assert time.monotonic() - began < 15
        assert (hook.events(), done.json()["totals"]["trimmed"], here.ends(topic)[0]) == (["trimmed"], 1, 7)
    show_none((plan.out, done.out, done.err), Webhook.PATH)
    with Webhook() as hook:
        more = f"notify: {{url: '{hook.url}'}}\nlimits: {{max.records: 1}}\n"
        here.commit(f"{topic}-group", topic, 9)
        here.cli("trim", "-p", str(policy_of(here, topic, more=more)), "--yes", check=6)
        assert [(one["event"], "limits.max.records" in one["text"]) for one in hook.bodies] == [("refused", True)]


FIRST, NEW, STRANGER = 1, 2, 3


def both(number: int) -> str:
    return (
        self_signed(number) + pair(number)[0].private_bytes(PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption()).decode()
    )


@pytest.mark.long
def test_watch_goes_on_with_a_certificate_that_is_replaced_while_it_runs(
    tmp_path: Path, archived_classes: None
) -> None:
    """Also its election does: the broker comes back, and knows the old certificate no more."""
    broker = written(tmp_path / "broker.pem", self_signed() + key_pem())
    ca, trusted = written(tmp_path / "ca.pem", self_signed()), written(tmp_path / "trusted.pem", self_signed(FIRST))
    ours = written(tmp_path / "ours.pem", both(FIRST))
    listener = "listener.name.secure.ssl"
    settings = QUICK | {
        f"{listener}.client.auth": "required",
        f"{listener}.keystore.type": "PEM",
        f"{listener}.keystore.location": str(broker),
        f"{listener}.truststore.type": "PEM",
        f"{listener}.truststore.location": str(trusted),
    }
    config = properties(
        tmp_path,
        security_protocol="SSL",
        ssl_ca_location=ca,
        ssl_keystore_type="PEM",
        ssl_keystore_location=ours,
    )
    with EmbeddedKafka(1, settings=settings, secure_protocol="SSL") as kafka:
        world = World(kafka.bootstrap, tmp_path / "a" / "state")
        world.cli("cluster", "init", "--yes", check=0)
        topic = world.filled([30 * HOUR] * 10, {"a": 7})
        policy = policy_of(world, topic)
        secure = World(kafka.secure_bootstrap, world.state_dir)
        with watching(secure, policy, "-c", str(config), "--trim", "--interval", "1s", "--timeout", "3s") as watcher:
            watcher.wait_for("trimmed 7 records")
            ours.write_text(both(STRANGER))
            watcher.wait_for("the broker refused the client certificate")
            ours.write_text(both(FIRST)[:-200])
            watcher.wait_for("the certificates or the key of the connection can't be used")
            kafka.node(1).terminate()
            trusted.write_text(self_signed(NEW))
            ours.write_text(both(NEW))
            kafka.start_node(kafka.node(1))
            kafka.wait_until_ready()
            world.commit(f"{topic}-a", topic, 9)
            watcher.wait_for("trimmed 2 records", 60)
            wait_until(lambda: watcher.metrics().get(("kretain_leader",)) == 1, "a leader", 20)
