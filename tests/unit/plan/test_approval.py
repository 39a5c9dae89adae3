"""Who may approve a plan: signatures over its digest, keys of the policy, ages, and that two people take part."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from retention_cli.core.errors import Refusal
from retention_cli.core.model import Decision
from retention_cli.core.signing import KeyProblemError, check, key_id, private_key, public_key, sign, statement
from retention_cli.decide.guards.approval import needs_approval
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.approval import Approval, Offered, approve, approved, offered, requested
from retention_cli.plan.saved import SavedPlanError, read_plan, write_plan
from retention_cli.plan.value import Plan, plan_text
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import ApproveRules
from tests.support.facts import HOUR, known
from tests.support.plans import plan, row
from tests.support.says import refusal

NOW = 1_795_000_000_000
ALICE, BOB, CI, MALLORY = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(1, 5))


def public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(
        key.public_key().public_bytes(ser.Encoding.DER, ser.PublicFormat.SubjectPublicKeyInfo)
    ).decode()


def pem(key: Ed25519PrivateKey, passphrase: bytes = b"") -> bytes:
    how = ser.BestAvailableEncryption(passphrase) if passphrase else ser.NoEncryption()
    return key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, how)


RULES = ApproveRules((public(ALICE), public(BOB)), max_records=0)
STRICT = replace(RULES, requesters=(public(CI),))


def trims(topic: str, trim_to: int) -> Decision:
    return row(topic=topic, trim_to=trim_to, records=trim_to, high_watermark=10, last_stable_offset=10, min_commit=8)


PLAN = plan(trims("a", 8), trims("b", 5), created_at_ms=NOW)


def saved(tmp_path: Path, plan: Plan = PLAN, name: str = "plan.json") -> Path:
    path = tmp_path / name
    if path.suffix == ".parquet":
        write_plan(path, plan)
    else:
        path.write_text(plan_text(plan))
    return path


def signed(file: Path, content: dict[str, Any], key: Ed25519PrivateKey) -> Path:
    file.write_text(json.dumps(Approval(content, sign(statement(content), key)).as_json()))
    return file


def approve_file(path: Path, key: Ed25519PrivateKey, by: str = "bob", at_ms: int = NOW) -> Path:
    content = {**approve([read_plan(path)], key, at_ms).content, "by": {"user": by, "host": "h"}}
    return signed(Path(f"{path}.approval"), content, key)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = saved(tmp_path)
    approve_file(found, BOB)
    return found


def shown(path: Path, by: str = "alice", file: Path | None = None, max_age_ms: int = HOUR) -> Offered:
    return replace(known(offered(read_plan(path), str(path), file, max_age_ms)), by={"user": by, "host": "h"})


def refused(path: Path, rules: ApproveRules = RULES, now_ms: int = NOW, **more: Any) -> str:
    return refusal(Refusal, approved, shown(path, **more), rules, now_ms)


@pytest.mark.parametrize("name", ["plan.json", "plan.parquet"])
def test_approval_by_another_person_counts_in_every_format(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, name=name)
    approve_file(path, BOB)
    assert approved(shown(path), RULES, NOW).signed.key == key_id(BOB.public_key())


def edits(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values in a JSON document, as the keys that lead to them."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [one for key, value in inner for one in edits(value, (*path, key))] or [path]


def edited(document: dict[str, Any], place: tuple[Any, ...]) -> dict[str, Any]:
    """Return a document with another value in a place."""
    changed = json.loads(json.dumps(document))
    node = changed
    for key in place[:-1]:
        node = node[key]
    old = node[place[-1]]
    node[place[-1]] = old + "x" if isinstance(old, str) else (old or 0) + 1 if isinstance(old, int | None) else {"a": 1}
    return changed


def test_any_edited_value_of_a_plan_takes_its_approval_away(tmp_path: Path) -> None:
    path = saved(tmp_path, requested(PLAN, CI))
    approve_file(path, BOB)
    document = json.loads(path.read_text())
    places, unreadable, refusals = edits(document), {}, {}
    for place in places:
        path.write_text(json.dumps(edited(document, place)))
        try:
            approved(shown(path), RULES, NOW)
        except SavedPlanError as error:
            unreadable[place] = str(error)
        except Refusal as error:
            refusals[place] = str(error)
    assert {*unreadable, *refusals} == {*places}, "these may be edited"
    assert len(unreadable) < len(places) / 2
    assert [text for text in refusals.values() if "another plan, or the plan was changed" not in text] == []
    path.write_text(json.dumps(dict(reversed(document.items())), indent=4))
    assert approved(shown(path), RULES, NOW), "the order of keys says nothing"


@pytest.mark.parametrize("rows", [PLAN.decisions[:1], (*PLAN.decisions, trims("c", 1))], ids=["dropped", "added"])
def test_row_that_is_added_or_dropped_takes_the_approval_away(
    path: Path, tmp_path: Path, rows: tuple[Decision, ...]
) -> None:
    saved(tmp_path, replace(PLAN, decisions=rows))
    assert "changed" in refused(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda it: it.update(at="2036-01-01T00:00:00.000Z"), "was changed"),
        (lambda it: it.update(by={"user": "eve", "host": "h"}), "was changed"),
        (lambda it: it.update(signature="AAAA"), "was changed"),
        (lambda it: it.update(signature="not base64!"), "was changed"),
        (lambda it: it.update(more=1), "was changed"),
        (lambda it: it["plans"][0].update(digest="sha256:0"), "was changed"),
        (lambda it: it.update(key=key_id(ALICE.public_key())), "was changed"),
        (lambda it: it.update(key=key_id(MALLORY.public_key())), "approve.keys does not have"),
        (lambda it: it.update(key=7), "not an approval"),
        (lambda it: it.update(format="kretain.plan/v1"), "not an approval"),
        (lambda it: it.pop("signature"), "not an approval"),
        (lambda it: it.pop("by"), "not an approval"),
    ],
)
def test_edited_approval_is_refused(path: Path, change: Callable[[dict[str, Any]], object], why: str) -> None:
    file = Path(f"{path}.approval")
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    assert why in refused(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_broken_approval_is_refused(tmp_path: Path, content: bytes) -> None:
    path = saved(tmp_path)
    Path(f"{path}.approval").write_bytes(content)
    assert "is not an approval" in refused(path)


def test_approval_is_for_no_more_than_its_plan_showed(path: Path) -> None:
    """Whoever edits a plan before it is approved can make it look smaller than it is."""
    assert approved(shown(path), RULES, NOW, Amount(13, None, 0))
    for run in (Amount(14), Amount(13, 0, 1)):
        assert "more than was approved" in refusal(Refusal, approved, shown(path), RULES, NOW, run)


def test_missing_approval_is_refused_with_what_to_do(tmp_path: Path) -> None:
    assert "kretain approve" in refused(saved(tmp_path))
    assert "kretain plan --out" in refusal(Refusal, approved, None, RULES, NOW)
    assert offered(PLAN, "plan.json", None, HOUR) is None, "it was made in this run, whatever file is named"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({}, None),
        ({"by": "alice"}, "that takes two people"),  # the user who trims
        ({"approver": MALLORY}, "approve.keys does not have"),
        ({"approver": CI, "rules": STRICT}, "approve.keys does not have"),  # who may request may not approve
        ({"requester": ALICE}, None),
        ({"requester": ALICE, "by": "alice"}, None),  # another key, though a shared account
        ({"requester": MALLORY, "by": "alice"}, "that takes two people"),  # a key that nobody knows proves nothing
        ({"requester": MALLORY}, None),
        ({"rules": STRICT}, "has no signature"),
        ({"requester": MALLORY, "rules": STRICT}, "has no signature"),
        ({"requester": CI, "by": "alice", "rules": STRICT}, None),
        ({"requester": ALICE, "rules": STRICT}, None),
        ({"age_ms": HOUR}, None),
        ({"age_ms": HOUR + 1}, "is 1h old"),
        ({"age_ms": -60_000}, None),
        ({"age_ms": -60_001}, "in the future"),
    ],
)
def test_approval_counts_by_another_person_and_within_its_time(
    tmp_path: Path, case: dict[str, Any], why: str | None
) -> None:
    case = {"requester": None, "approver": BOB, "by": "bob", "rules": RULES, "age_ms": 0, **case}
    path = saved(tmp_path, requested(PLAN, case["requester"]) if case["requester"] else PLAN)
    approve_file(path, case["approver"], case["by"], at_ms=NOW - case["age_ms"])
    if why is None:
        assert approved(shown(path), case["rules"], NOW)
    else:
        assert why in refused(path, case["rules"])


def test_key_that_requested_a_plan_cannot_approve_it_even_by_hand(tmp_path: Path) -> None:
    mine = requested(PLAN, BOB)
    assert "another person has to approve" in refusal(Refusal, approve, [mine], BOB, NOW)
    path = saved(tmp_path, mine)
    file = approve_file(saved(tmp_path, requested(PLAN, ALICE), "other.json"), BOB)
    content = json.loads(file.read_text())
    del content["signature"]
    content["plans"][0]["requester"] = json.loads(path.read_text())["requester"]
    assert "both requested and approved the plan" in refused(path, file=signed(file, content, BOB))


def test_requesters_signature_of_another_plan_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, replace(PLAN, requester=requested(replace(PLAN, created_at_ms=NOW + 1), CI).requester))
    approve_file(path, BOB)
    assert "changed after its requester" in refused(path, STRICT)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot be read"), (pem(ALICE), "is a private key"), (b"no key", "not a pub")],
    ids=["absent", "private", "no key"],
)
def test_unreadable_key_of_the_policy_is_refused(path: Path, tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "key.pem").write_bytes(content)
    assert why in refused(path, replace(RULES, keys=(public(BOB), "key.pem"), folder=tmp_path))


@pytest.mark.parametrize(
    ("above", "run", "past", "why"),
    [
        ("", Amount(1, 1), Amount(), "1 records are more than approve.above.records, 0"),
        (", above: {}", Amount(1, 1), Amount(), "approve.above.records, 0"),
        ("", Amount(0, 0), Amount(50, 0), None),  # nothing is trimmed
        (", above: {records: 10M}", Amount(10_000_000, None, 5), Amount(), None),
        (", above: {records: 10M}", Amount(10_000_001, 1), Amount(), "10,000,001 records"),
        (", above: {records: 10M}", Amount(6_000_000), Amount(6_000_000), "with what was trimmed without one"),
        (", above: {records: 10M}", Amount(1), None, "the audit log is broken"),
        (", above: {bytes: 1KiB}", Amount(1, 1024), Amount(), None),
        (", above: {bytes: 1KiB}", Amount(1, 1025), Amount(), "bytes"),
        (", above: {bytes: 1KiB}", Amount(1, None), Amount(), "an unknown number of bytes"),
        (", above: {unconsumed: 0}", Amount(10**9, None, 0), Amount(), None),
        (", above: {unconsumed: 0}", Amount(5, 1, 1), Amount(), "1 unread records"),
        (", above: {unconsumed: 2}", Amount(5, 1, 1), Amount(5, 1, 2), "3 unread records"),
    ],
)
def test_trim_above_an_amount_needs_an_approval(above: str, run: Amount, past: Amount | None, why: str | None) -> None:
    policy = parse_policy(f"version: 1\napprove: {{keys: a.pem{above}}}\ntopics: [{{match: a}}]", "p.yaml", "")
    found = needs_approval(run, past, policy.approve)
    assert (found is None) if why is None else (found is not None and why in found)
    assert needs_approval(run, past, None) is None


def test_public_key_is_read_in_every_common_form() -> None:
    der = public(ALICE)
    ssh = ALICE.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH) + b" alice@laptop\n"
    for form in (ssh, der.encode(), f"-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n".encode()):
        assert key_id(public_key(form)) == key_id(ALICE.public_key())


OPENSSH = ALICE.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, ser.NoEncryption())


@pytest.mark.parametrize(
    ("content", "word"),
    [(pem(ALICE), b""), (pem(ALICE), b"unused"), (OPENSSH, b""), (pem(ALICE, b"x"), b"x")],
    ids=["PEM", "an unused passphrase", "OpenSSH", "encrypted"],
)
def test_private_key_is_read_in_every_common_form(content: bytes, word: bytes) -> None:
    signature = sign(b"text", private_key(content, word))
    claims = ((b"text", ALICE), (b"other", ALICE), (b"text", BOB))
    assert [check(text, signature, by.public_key()) for text, by in claims] == [True, False, False]


@pytest.mark.parametrize(
    ("content", "word", "why"),
    [
        (pem(ALICE, b"x"), b"", "is encrypted: put its passphrase into KRETAIN_KEY_PASSPHRASE"),
        (pem(ALICE, b"x"), b"y", "is not its passphrase"),
        (b"no key", b"", "is not a private key in PEM"),
    ],
)
def test_unusable_private_key_is_refused_without_its_content(content: bytes, word: bytes, why: str) -> None:
    assert why in refusal(KeyProblemError, private_key, content, word)


def test_key_of_another_kind_is_refused() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    private = other.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    its_public = other.public_key().public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)
    assert "not an ed25519 key" in refusal(KeyProblemError, private_key, private)
    assert "not an ed25519 key" in refusal(KeyProblemError, public_key, its_public)
