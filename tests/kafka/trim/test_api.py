"""The Python API on a real cluster: the same plans and trims as the commands', as values (docs/python.md)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kretain
from kretain.api.values import Outcome, Partition
from retention_cli.core.model import TopicPartition
from retention_cli.plan.value import NAMES
from retention_cli.trim import batches
from retention_cli.trim.report import TrimRow, row_as_json
from tests.support.says import json_of, pick
from tests.support.world import HOUR, World, consumed, written

DOCS = Path(__file__).parents[3] / "docs" / "python.md"


@pytest.fixture
def topic(world: World) -> str:
    """Three partitions of ten old records each, of which seven are read."""
    return world.filled([30 * HOUR] * 10, {"billing": 7}, 3, stem="api")


@pytest.fixture
def policy(topic: str, tmp_path: Path) -> Path:
    return written(tmp_path / "policy.yaml", consumed(topic))


def connected(world: World, policy: Path | None = None, **more: Any) -> kretain.Cluster:
    return kretain.connect(bootstrap_servers=world.bootstrap, policy=policy, state_dir=world.state_dir, **more)


def starts(world: World, topic: str) -> list[int]:
    return [world.ends(topic, partition)[0] for partition in range(3)]


def undated(plan: dict[str, Any]) -> dict[str, Any]:
    return {**plan, "created_at": None, "memory": None, "notes": [], "policy": {**plan["policy"], "source": None}}


def refused(
    kind: type[kretain.KretainError], words: str, call: Callable[..., object], *given: Any, **named: Any
) -> Any:
    """Call, which must raise such an error with these words (a pattern); return the error."""
    with pytest.raises(kind, match=words) as caught:
        call(*given, **named)
    return caught.value


def test_api_plan_equals_the_commands_and_its_trim_deletes_exactly_that(
    world: World, topic: str, policy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tuple(one.name for one in dataclasses.fields(Partition)) == NAMES
    row = row_as_json(TrimRow(TopicPartition("t", 0), "trimmed"))
    assert [one.name for one in dataclasses.fields(Outcome)] == list(row)
    printed = world.cli("plan", "-p", str(policy), "-o", "json", check=0).json()
    with connected(world, policy) as cluster:
        plan = cluster.plan()
        assert plan.to_arrow().drop_columns(["cluster"]).to_pylist() == plan.to_dict()["partitions"]
        frame = plan.to_pandas()
        assert (str(frame["min_commit"].dtype), list(frame["trim_to"])) == ("Int64", [7, 7, 7])
        assert undated(json.loads(plan.to_json())) == undated(printed)
        assert plan.to_dict()["partitions"] == printed["partitions"]
        assert ([(row.trim_to, row.records) for row in plan], plan.totals.records) == ([(7, 7)] * len(plan), 21)
        assert refused(kretain.RefusedError, "nothing was trimmed", cluster.trim, plan, yes="yes").exit_code == 6
        rehearsed = cluster.trim(plan, dry_run=True, yes=True)
        assert {row.outcome for row in rehearsed.partitions} == {"would-trim"}
        assert rehearsed.to_arrow().to_pylist() == rehearsed.to_dict()["partitions"]
        assert list(rehearsed.to_pandas()["target"]) == [7, 7, 7]
        assert starts(world, topic) == [0, 0, 0]
        first = cluster.trim(plan, yes=True, max_partitions=1)
        assert (first.records, first.exit_code, starts(world, topic)) == (7, 0, [7, 0, 0])
        report = cluster.trim(plan, yes=True)
        assert [row.outcome for row in report.partitions] == ["unchanged", "trimmed", "trimmed"]
    assert starts(world, topic) == [7, 7, 7]
    assert report.run in world.cli("history", "--run", report.run, "-o", "json", check=0).out
    assert capfd.readouterr() == ("", "")


def test_api_trims_only_a_plan_that_it_made(world: World, topic: str, policy: Path, tmp_path: Path) -> None:
    """A copy that was edited is refused; an edited file can only be narrowed, as for the command."""
    file = tmp_path / "plan.json"
    with connected(world, policy) as cluster:
        plan = cluster.plan()
        with pytest.raises(dataclasses.FrozenInstanceError):
            plan.totals = None  # type: ignore[misc, assignment]
        copy = dataclasses.replace(plan, topics=("*",))
        assert refused(kretain.KretainError, "plans cannot be edited", cluster.trim, copy, yes=True).exit_code == 2
        for path in (file, tmp_path / "plan.parquet"):
            plan.save(path)
            assert kretain.load_plan(path).partitions == plan.partitions
        edited = file.read_text().replace('"trim_to": 7', '"trim_to": 10')
        cluster.trim(kretain.load_plan(written(file, edited)), yes=True)
        assert starts(world, topic) == [7, 7, 7]
        written(file, edited.replace(plan.cluster_id, "another"))
        refused(kretain.RefusedError, "for cluster another", cluster.trim, kretain.load_plan(file), yes=True)
    assert refused(kretain.KretainError, "not a valid plan file", kretain.load_plan, policy).exit_code == 1


def test_api_trim_honours_todays_policy_and_the_plans_age(
    world: World, topic: str, policy: Path, tmp_path: Path
) -> None:
    with connected(world, policy) as cluster:
        plan = cluster.plan()
        refused(kretain.RefusedError, "old", cluster.trim, plan, yes=True, max_age=0)
        refused(
            kretain.RefusedError, "made without one-off rules", cluster.trim, plan, topic, yes=True, older_than="1h"
        )
        policy.write_text(consumed(topic, after="60d"))
        assert {row.outcome for row in cluster.trim(plan, yes=True).partitions} == {"unchanged"}
        policy.write_text("limits: {max.records: 1}\n" + consumed(topic))
        refused(kretain.RefusedError, "records", cluster.trim, plan, yes=True)
        policy.write_text("version: 1\nnonsense: 1\n")
        assert refused(kretain.PolicyError, "nonsense", cluster.trim, plan, yes=True).code == "policy"
    assert starts(world, topic) == [0, 0, 0]
    with connected(world) as cluster:
        plan = cluster.plan(topic, consumed_after="1h")
        plan.save(tmp_path / "plan.json")
        loaded = kretain.load_plan(tmp_path / "plan.json")
        refused(kretain.RefusedError, "made with --consumed-after 1h", cluster.trim, loaded, yes=True)
        cluster.trim(loaded, topic, yes=True, max_partitions=1, consumed_after=HOUR)
        cluster.trim(plan, yes=True)  # which remembers its rules
    assert starts(world, topic) == [7, 7, 7]


def test_api_reads_no_policy_that_was_not_named(
    world: World, topic: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the default context's nor a variable's; a named context's is, for its own cluster alone."""
    config = written(
        tmp_path / "config.yaml",
        f"contexts:\n  prod: {{bootstrap-server: '{world.bootstrap}', policy: policy.yaml}}\ndefault-context: prod\n",
    )
    monkeypatch.setenv("KRETAIN_CONFIG", str(config))
    monkeypatch.setenv("KRETAIN_POLICY", str(policy))
    with connected(world) as cluster:
        assert refused(kretain.KretainError, "there is no policy", cluster.plan).exit_code == 2
    refused(kretain.UsageError, "name the cluster", kretain.connect, policy=policy)
    refused(
        kretain.KretainError,
        "leave bootstrap_servers",
        kretain.connect,
        context="prod",
        bootstrap_servers=world.bootstrap,
    )
    with kretain.connect(context="prod", state_dir=world.state_dir) as cluster:
        assert cluster.plan().totals.trim == 3
    refused(kretain.KretainError, "closed", cluster.plan)


def test_api_ctrl_c_carries_the_report(world: World, topic: str, policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = batches.Trimmer._send  # noqa: SLF001  (where a request has just been answered)

    def then_interrupt(*given: Any) -> None:
        send(*given)
        signal.raise_signal(signal.SIGINT)

    with connected(world, policy) as cluster:
        plan = cluster.plan()
        monkeypatch.setattr(batches.Trimmer, "_send", then_interrupt)
        with pytest.raises(kretain.InterruptedTrim) as ended:
            cluster.trim(plan, yes=True)
    report = ended.value.report
    assert (isinstance(ended.value, KeyboardInterrupt), report.exit_code) == (True, 130)
    trimmed = [row.outcome == "trimmed" for row in report.partitions]
    assert (any(trimmed), starts(world, topic)) == (True, [7 if one else 0 for one in trimmed])


def test_api_reports_equal_the_commands_json(world: World, topic: str, policy: Path) -> None:
    def printed(*arguments: str) -> Any:
        return json_of(world, *arguments, "-p", str(policy))

    group = f"{topic}-billing"
    written(policy, f"cost: {{per.gib.month: 0.5}}\n{consumed(topic)}")
    with connected(world, policy) as cluster:
        report = cluster.trim(cluster.plan(), yes=True, max_partitions=1)
        offsets = cluster.offsets(topic)
        assert offsets.to_dict() == printed("offsets", topic)
        assert [pick(row, "partition", "min_commit", "lag") for row in offsets] == [(n, 7, 3) for n in range(3)]
        assert cluster.offsets(groups=[group]).to_dict() == printed("offsets", "--group", group)
        assert cluster.offsets(unread="topics").to_dict() == printed("offsets", "--unread")
        assert str(offsets.to_pandas()["min_commit"].dtype) == "Int64"
        groups = cluster.groups(group)
        assert (groups.to_dict(), groups[0]["lag"]) == (printed("groups", "--group", group), 9)
        explained = cluster.explain(topic, 1, consumed_after="1h")
        assert explained.to_dict()["partitions"][0].keys() == printed("explain", topic)["partitions"][0].keys()
        assert [pick(row, "trim_to", "partition") for row in explained] == [(7, 1)]
        runs = cluster.history()
        assert (runs.to_dict(), [one["run"] for one in runs]) == (json_of(world, "history"), [report.run])
        assert [one["target"] for one in cluster.history(report.run)] == [7]
        assert len(cluster.history(outcome="failed")) == len(cluster.history(since=0)) == 0
        forecast, from_command = cluster.forecast(), printed("forecast")
        same = ("format", "cluster", "policy", "every_ms", "least_ms")
        assert pick(forecast.head, *same) == pick(from_command, *same)
        assert [one["topic"] for one in forecast] == [one["topic"] for one in from_command["topics"]] == [topic]
        assert "cost_now_low" in forecast[0], "with a price, rows have the money, too"
        assert forecast[0].keys() == from_command["topics"][0].keys()
        assert refused(kretain.KretainError, "", cluster.history, "no-such-run").code == "state"
        missing = refused(kretain.KretainError, "", cluster.explain, "no-such-topic", consumed_after="1h").code
        assert missing == "nothing-matches"
        assert refused(kretain.KretainError, "", cluster.groups, "re:(").code == "usage"
    with connected(world) as cluster:
        assert len(cluster.offsets(topic)) == 3, "no policy is needed"
        refused(kretain.UsageError, "there is no policy", cluster.forecast)


def test_api_works_in_a_running_loop_and_from_threads(world: World, topic: str, policy: Path) -> None:
    def work() -> int:
        with connected(world, policy) as cluster:
            return cluster.plan().totals.trim

    async def notebook() -> list[int]:
        return [work(), await asyncio.to_thread(work)]

    assert asyncio.run(notebook()) == [3, 3]
    with connected(world, policy) as cluster, ThreadPoolExecutor(2) as threads:
        others = [threads.submit(work) for _ in range(2)]
        assert [cluster.plan().totals.trim, *(one.result() for one in others)] == [3, 3, 3]
        report = asyncio.run(asyncio.to_thread(cluster.trim, cluster.plan(), yes=True))  # no main thread, no signals
    assert report.records == 21


def test_documented_python_examples_run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = world.filled([100 * HOUR] * 10, name="orders")
    world.commit("billing", topic, 7)
    written(tmp_path / "policy.yaml", consumed(topic))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    names: dict[str, Any] = {}
    shown = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in shown:
        exec(compile(block.replace("localhost:9092", world.bootstrap), str(DOCS), "exec"), names)  # noqa: S102
    assert (len(shown), world.ends(topic)) == (4, (7, 10))
    world.delete(topic)


def test_import_of_kretain_loads_no_heavy_module() -> None:
    script = (
        "import sys, kretain\n"
        "assert 'connect' in dir(kretain)\n"
        "assert not {'typer', 'kafka', 'pydantic', 'kretain.api'} & set(sys.modules), 'not lazy'\n"
        "kretain.connect\n"
        "assert 'kretain.api.cluster' in sys.modules\n"
        "assert not {'pandas', 'pyarrow', 'pyspark'} & set(sys.modules), 'too much'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "given",
    [
        {"consumed_after": -1},
        {"consumed_after": "soon"},
        {"older_than": True},
        {"before": "2026-11-01T00:00:00"},
        {"unconsumed": "yes"},
        {"max_records": 5},
    ],
)
def test_api_names_a_wrong_argument(given: dict[str, Any]) -> None:
    from kretain.api.arguments import rules_of

    assert refused(kretain.KretainError, next(iter(given)), rules_of, ("t",), given).exit_code == 2


def test_api_trim_copies_the_audit_log(world: World, topic: str, policy: Path) -> None:
    """The command sends copies after its report; the API has to do so by itself."""
    copy = world.topic("audit")
    policy.write_text(f"{consumed(topic)}\naudit: {{topic: {copy}}}")
    with connected(world, policy) as cluster:
        cluster.trim(cluster.plan(), yes=True)
        assert world.ends(copy)[1] > 0, "lines of the run are there"
        policy.write_text(f"{consumed(topic)}\naudit: {{topic: no-{copy}}}")
        world.commit(f"{topic}-billing", topic, dict.fromkeys(range(3), 8))
        report = cluster.trim(cluster.plan(), yes=True)
    assert any("its copy is not" in note.text for note in report.notes)
