"""Trims that a second person has to approve, with the real commands on a real cluster (docs/approval.md)."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import kretain
from retention_cli.audit.chain import is_signed
from retention_cli.core.signing import Signed, check, private_key, public_key, statement
from retention_cli.plan.approval import requested
from retention_cli.plan.saved import read_plan
from retention_cli.trim.batches import RefusedError
from retention_cli.trim.state import State
from tests.support.facts import known
from tests.support.says import refusal, says
from tests.support.trims import audit, read_topic
from tests.support.watching import watching
from tests.support.world import Cli, World, consumed, run_cli, written

PEOPLE = ("alice", "bob", "ci", "eve")


class Desk:
    """Three partitions of ten old records, of which seven are read; a policy, and everyone's keys."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.topic = read_topic(world, 3)
        self.policy, self.plan = folder / "p.yaml", folder / "plan.json"
        for number, name in enumerate(PEOPLE, 1):
            key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
            text = key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
            (folder / f"{name}.pem").write_bytes(text)
            text = key.public_key().public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)
            (folder / f"{name}.pub").write_bytes(text)
        self.rule("{keys: [alice.pub, bob.pub], requesters: ci.pub, above: {records: 10}}")

    def rule(self, approve: str, **more: str) -> None:
        self.policy.write_text(f"{consumed(self.topic, **more)}\napprove: {approve}\n")

    def save(self, *arguments: str, key: str = "ci") -> None:
        self.run("plan", "--out", str(self.plan), "--key", str(self.folder / f"{key}.pem"), *arguments, check=0)

    def approve(self, key: str = "bob", *arguments: str, check: int = 0) -> Cli:
        words = ("approve", str(self.plan), "--key", str(self.folder / f"{key}.pem"), "--yes", *arguments)
        return self.world.cli(*words, check=check)

    def trim(self, *arguments: str, check: int | None = None) -> Cli:
        return self.run("trim", "--plan", str(self.plan), "--yes", *arguments, check=check)

    def run(self, *words: str, check: int | None = None) -> Cli:
        return self.world.cli(*words, "-p", str(self.policy), check=check)

    def public(self, name: str) -> Any:
        return public_key((self.folder / f"{name}.pub").read_bytes())

    def starts(self) -> list[int]:
        return [self.world.ends(self.topic, partition)[0] for partition in range(3)]


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    return Desk(world, tmp_path)


def test_approved_plan_is_trimmed_and_its_approval_is_kept_as_evidence(desk: Desk) -> None:
    refused = desk.run("trim", "--yes", check=6).err
    says(refused, "21 records are more than approve.above.records, 10", "kretain plan --out plan.json")
    desk.save()
    assert "plan.json.approval cannot be read" in desk.trim(check=6).err
    assert "another person has to approve the plan" in desk.trim("--dry-run", check=0).err
    assert desk.starts() == [0, 0, 0]
    assert "21 records" in desk.approve().err
    assert desk.trim("--dry-run", check=0).err == "", "the refused trim did not carry it out"
    with desk.policy.open("a") as file:
        file.write("evidence: {sign: gone.pem}\n")
    assert "gone.pem cannot be read" in desk.trim(check=6).err
    (desk.folder / "ci.pem").rename(desk.folder / "gone.pem")
    desk.trim(check=0)
    assert desk.starts() == [7, 7, 7]
    lines = audit(desk.world)
    assert is_signed(lines[-1], desk.public("ci"))
    kept = [line for line in lines if line["event"] == "run"][-1]["approval"]
    assert (kept["plans"][0]["records"], kept["format"]) == (21, "kretain.approval/v1")
    signed = Signed(kept["key"], kept.pop("signature"))
    assert check(statement(kept), signed, desk.public("bob"))
    assert [line for line in lines if (line["event"], line.get("exit")) == ("end", 6)], "a refused trim is there, too"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_edited_plan_in_parts_deletes_no_more_than_its_approver_saw(desk: Desk) -> None:
    """Each row says 3 records, and 7 would go: of one partition that is less than the 9 that all rows say."""
    desk.rule("{keys: [alice.pub, bob.pub], requesters: ci.pub}")
    desk.save()
    edit(desk.plan, lambda it: [row.update(log_start=4, records=3) for row in it["partitions"]])
    signed = known(requested(read_plan(desk.plan), private_key((desk.folder / "ci.pem").read_bytes())).requester)
    edit(desk.plan, lambda it: it.update(requester={"key": signed.key, "signature": signed.signature}))
    assert "9 records" in desk.approve().err
    for above in ("", ", above: {records: 10}"):  # below it no approval is needed, but the log would have one
        desk.rule(f"{{keys: [alice.pub, bob.pub], requesters: ci.pub{above}}}")
        said = desk.trim(f"{desk.topic}:1", check=6).err
        assert f"more of {desk.topic}-1 than the plan showed its approver: plan again" in said
    assert desk.starts() == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "approver", "arguments", "why"),
    [
        (lambda it: it.pop("requester"), "bob", (), "has no signature by a key of approve.requesters"),
        (lambda _it: None, "eve", (), "approve.keys does not have"),
        (
            lambda it: it["partitions"][0].update(trim_to=6, records=6),
            None,
            ("--max-partitions", "2"),
            "the plan was changed since",
        ),
    ],
    ids=["stripped requester", "foreign approver", "edited plan"],
)
def test_trim_without_a_valid_approval_is_refused(
    desk: Desk, change: Callable[[Any], object], approver: str | None, arguments: tuple[str, ...], why: str
) -> None:
    """It is changed after its approval, and in two cases approved again."""
    desk.save()
    desk.approve()
    edit(desk.plan, change)
    if approver is not None:
        desk.approve(approver)
    refused = desk.trim(*arguments, check=6).err
    assert (why in refused, refused.count("\n"), desk.starts()) == (True, 1, [0, 0, 0]), refused


def test_large_trim_in_small_parts_needs_an_approval_too(desk: Desk) -> None:
    desk.run("trim", f"{desk.topic}:0", "--yes", check=0)
    says(
        desk.run("trim", f"{desk.topic}:1", "--yes", check=6).err,
        "14 records with what was trimmed without one in the last 24 hours",
    )
    assert "21 records with" in desk.run("trim", desk.topic, "--consumed-after", "1h", "--yes", check=6).err
    desk.save()
    assert "14 records with" in desk.trim("--max-partitions", "1", check=6).err
    assert desk.starts() == [7, 0, 0]
    desk.approve()
    desk.trim(f"{desk.topic}:1", check=0)
    desk.trim(check=0)
    assert desk.starts() == [7, 7, 7]


def test_rule_that_appears_since_the_plan_counts_at_the_recheck(desk: Desk) -> None:
    """Whoever asks the engine to trim, and whatever policy the plan was made with."""
    plan = desk.world.plan(consumed(desk.topic))
    strict = f"{consumed(desk.topic)}\napprove: {{keys: {desk.folder}/bob.pub}}"
    assert "approve.above.records, 0" in refusal(RefusedError, desk.world.trim, plan, strict)
    assert desk.starts() == [0, 0, 0]


def test_rule_that_appears_between_two_batches_holds_the_rest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    lax = consumed(desk.topic)
    strict = f"{lax}\napprove: {{keys: {desk.folder}/bob.pub}}"
    policies = itertools.chain([lax], itertools.repeat(strict))

    def one_by_one(state: State) -> list[Any]:
        return [tp for tp in state.planned if tp not in state.rows][:1]

    monkeypatch.setattr(State, "waiting", one_by_one)
    report = desk.world.trim(desk.world.plan(lax), lambda: next(policies))
    assert [row.outcome for row in report.rows] == ["trimmed", "held", "held"]
    assert "approve.above.records" in report.rows[1].reasons[0].text
    assert desk.starts() == [7, 0, 0]


def test_parquet_plan_and_fleet_are_approved_alike(desk: Desk) -> None:
    desk.plan = desk.folder / "plan.parquet"
    desk.save()
    desk.approve()
    cluster = f"{{name: eu, bootstrap-server: '{desk.world.bootstrap}', policy: p.yaml}}"
    fleet = written(desk.folder / "fleet.yaml", f"version: 1\nclusters: [{cluster}]\n")
    words = ("--fleet", str(fleet), "--state-dir", str(desk.world.state_dir))
    saved = str(desk.folder / "fleet.json")
    assert "kretain plan --out" in run_cli("trim", *words, "--yes", check=6).err
    run_cli("plan", *words, "--out", saved, "--key", str(desk.folder / "ci.pem"), check=0)
    assert "cannot be read" in run_cli("trim", *words, "--plan", saved, "--yes", check=6).err
    run_cli("approve", saved, "--key", str(desk.folder / "bob.pem"), "--yes", check=0)
    shutil.copy(f"{saved}.approval", f"{desk.plan}.approval")
    assert "for another plan" in desk.trim(check=6).err
    assert desk.starts() == [0, 0, 0]
    run_cli("trim", *words, "--plan", saved, "--yes", check=0)
    assert desk.starts() == [7, 7, 7]


def test_api_trims_a_loaded_and_approved_plan_alone(desk: Desk) -> None:
    desk.save()
    desk.approve()
    given: dict[str, Any] = {"bootstrap_servers": desk.world.bootstrap, "state_dir": desk.world.state_dir}
    with kretain.connect(policy=desk.policy, **given) as cluster:
        assert "has to be saved, approved" in refusal(kretain.RefusedError, cluster.trim, cluster.plan(), yes=True)
        moved = Path(f"{desk.plan}.approval").rename(desk.folder / "elsewhere")
        plan = kretain.load_plan(desk.plan)
        assert "cannot be read" in refusal(kretain.RefusedError, cluster.trim, plan, yes=True)
        assert desk.starts() == [0, 0, 0]
        cluster.trim(plan, yes=True, approval=moved)
    assert desk.starts() == [7, 7, 7]


def test_watch_holds_what_needs_an_approval(desk: Desk) -> None:
    with watching(desk.world, desk.policy, "--trim", "--interval", "1s") as watcher:
        watcher.wait_for("a second person has to approve this plan")
    assert desk.starts() == [0, 0, 0]
