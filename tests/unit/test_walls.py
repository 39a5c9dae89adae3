"""The house's walls (docs/architecture.md, The rooms), read from the imports: who may speak to whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE, COMMANDS = ROOT / "retention_cli", ROOT / "cli" / "kretain"
PRODUCT = sorted([*ENGINE.rglob("*.py"), *COMMANDS.rglob("*.py")])
PURE = [
    *(
        ENGINE / name
        for name in (
            *("decide.py", "model.py", "narrow.py", "plan.py", "fleet/plan.py", "fleet/report.py"),
            *("floors/fold.py", "guards/limits.py"),
        )
    ),
    *(ENGINE / "profiling" / name for name in ("front.py", "hours.py", "pieces.py", "summary.py")),
    *sorted((ENGINE / "triggers").glob("*.py")),
    *sorted((ENGINE / "guards").glob("*.py")),
    *(
        ENGINE / "disks" / f"{name}.py"
        for name in ("estimate", "in_the_way", "outcome", "room", "segments", "tails", "water_level", "watermarks")
    ),
]
"""What is given all that it needs: facts, settings, now."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def within(path: Path, *folders: Path) -> bool:
    return any(folder == path or folder in path.parents for folder in folders)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it: ``a.b`` and ``a.b.c`` for ``from a.b import c``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: a relative import"
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names)


def brought_in(path: Path) -> set[str]:
    """Every module of ours that importing a file brings in, the file's own included."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if name_of(one) not in found:
            found.add(name_of(one))
            for module in imports(one):
                stem = ROOT.joinpath(*module.split("."))
                waiting += [file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.exists()]
    return found


def importers_of(*modules: str) -> set[str]:
    """Which files of the product import one of these modules, or something in them."""
    return {
        name_of(path)
        for path in PRODUCT
        if any(one == module or one.startswith(f"{module}.") for one in imports(path) for module in modules)
    }


def calls(path: Path) -> Iterator[str]:
    """Every function that is called by its name: ``print``, ``time.time``, ``dt.datetime.now``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_only_brokers_speaks_to_kafka() -> None:
    """And what starts a Kafka of its own, for the demo and the tests."""
    speakers = importers_of("kafka", "confluent_kafka")
    assert speakers
    assert {
        name for name in speakers if not name.startswith(("retention_cli/brokers/", "retention_cli/embedded/"))
    } == set()


def test_one_module_can_delete_and_the_way_to_a_trim_alone_leads_to_it() -> None:
    """Only trim holds an object that can delete (docs/architecture.md)."""
    deleting = "retention_cli/brokers/deleter.py"
    requests = {name_of(path) for path in PRODUCT if any("DeleteRecordsRequest" in one for one in imports(path))}
    assert requests == {deleting}
    holders = {"retention_cli/trim.py", "retention_cli/carry_out.py"}
    assert importers_of("retention_cli.brokers.deleter") == holders
    assert deleting in brought_in(COMMANDS / "commands" / "trim.py")
    assert deleting not in brought_in(ENGINE / "planning.py")
    ways = ("retention_cli.trim", "retention_cli.carry_out", "retention_cli.fleet.trimming")
    outside = {name for name in importers_of(*ways) if "kretain/" in name}
    assert outside == {"cli/kretain/commands/trim.py", "cli/kretain/fleet_trim.py"}
    assert importers_of("kretain.fleet_trim") == {"cli/kretain/commands/trim.py"}
    assert deleting not in brought_in(ENGINE / "fleet" / "planning.py")
    assert deleting not in brought_in(COMMANDS / "commands" / "plan.py")


def test_one_module_can_write_and_it_writes_to_our_own_topics() -> None:
    """What makes topics and appends to them is asked for by name, for named topics; the rest of the house can't."""
    writing = "retention_cli/brokers/writer.py"
    clients = {name_of(path) for path in PRODUCT if any("NewTopic" in one for one in imports(path))}
    assert {name for name in clients if not name.startswith("retention_cli/embedded/")} == {writing}
    assert importers_of("retention_cli.brokers.writer") == {
        "retention_cli/broker_clock.py",
        "retention_cli/own_topics.py",
        "retention_cli/policy_topic.py",
        "retention_cli/state_topic.py",
        "cli/kretain/commands/init.py",
        "cli/kretain/commands/policy.py",
    }
    assert writing not in brought_in(ENGINE / "observe.py")


def test_one_module_can_write_to_others_topics_and_only_a_restore_leads_to_it() -> None:
    """An archive is written from what a reader reads: it can't change a cluster, and a restore is asked for by name."""
    republishing = "retention_cli/brokers/republisher.py"
    assert importers_of("retention_cli.brokers.republisher") == {"retention_cli/archive/restore.py"}
    assert importers_of("retention_cli.archive.restore") == {
        "cli/kretain/commands/restore.py",
        "cli/kretain/render/archive.py",
    }
    for path in (ENGINE / "trim.py", ENGINE / "archive" / "archiver.py", COMMANDS / "commands" / "trim.py"):
        assert republishing not in brought_in(path)
    for path in (*(ENGINE / "archive").glob("*.py"), *(ENGINE / "spark").glob("*.py")):
        assert "retention_cli/brokers/deleter.py" not in brought_in(path), name_of(path)


def test_an_archive_can_be_written_without_a_command() -> None:
    """A Spark task archives one range: a reader and a store are all that it needs."""
    reached = brought_in(ENGINE / "archive" / "writer.py")
    assert not [one for one in reached if one.startswith(("cli/", "retention_cli/state", "retention_cli/planning"))]


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_what_decides_has_no_clock_no_chance_no_log_and_no_broker(path: Path) -> None:
    """The same facts, settings and now give the same decision (docs/architecture.md)."""
    impure = ("time", "random", "secrets", "logging", "os", "sys", "socket", "subprocess", "pathlib", "threading")
    assert not [one for one in imports(path) if one.partition(".")[0] in (*impure, "kafka", "confluent_kafka")]
    assert not [one for one in calls(path) if one.rpartition(".")[2] in ("now", "utcnow", "today", "open", "getenv")]
    reached = {name for name in brought_in(path) if name.startswith(("retention_cli/brokers", "retention_cli/state"))}
    assert not reached


def test_the_engine_knows_no_terminal() -> None:
    """No Typer, no rich, no printing: it travels to Spark executors."""
    for path in ENGINE.rglob("*.py"):
        heads = {one.partition(".")[0] for one in imports(path)}
        assert not heads & {"typer", "click", "rich", "kretain", "tabulate"}, name_of(path)
        if name_of(path) != "retention_cli/embedded/reaper.py":
            assert not [one for one in calls(path) if one in ("print", "input", "sys.stdout.write")], name_of(path)


def test_the_datas_way_through_the_house_goes_one_way() -> None:
    """Observe, decide, plan, trim: no room knows of those that come after it."""
    for folder, not_from in (
        ("brokers", ("policy", "decide", "observe", "planning", "trim", "floors", "triggers", "guards", "state")),
        ("policy", ("brokers", "decide", "observe", "planning", "trim", "floors", "state")),
        ("floors", ("decide", "observe", "planning", "trim", "triggers", "guards", "state")),
        ("disks", ("brokers", "observe", "planning", "trim", "floors", "state", "disk_rules")),
        ("state", ("brokers", "decide", "observe", "planning", "policy.load", "floors")),
        ("segments", ("brokers", "policy", "decide", "observe", "planning", "trim", "floors", "state", "triggers")),
    ):
        for path in (ENGINE / folder).glob("*.py"):
            later = tuple(f"retention_cli.{room}" for room in not_from)
            assert not [one for one in imports(path) if one.startswith(later)], name_of(path)


def test_what_reads_log_dirs_opens_nothing_to_write_to_it() -> None:
    """One module of the inventory writes, and it writes the inventory."""
    writing = {
        "mkstemp",
        "replace",
        "unlink",
        "chmod",
        "rename",
        "remove",
        "write",
        "truncate",
        "mkdir",
        "utime",
        "link",
    }
    for path in (ENGINE / "segments").glob("*.py"):
        if path.name != "table.py":
            called = {one.rpartition(".")[2] for one in calls(path) if not one.endswith(".fromtimestamp")}
            assert not called & writing, name_of(path)
            assert not [one for one in ("O_WRONLY", "O_RDWR", "O_CREAT", "mmap", "flock") if one in path.read_text()]


def test_nothing_rests_on_an_assertion() -> None:
    """``python -O`` drops them: those that stand in the product only tell the type checker what it can't see."""
    for path in PRODUCT:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Assert):
                assert "# noqa: S101" in lines[(node.end_lineno or node.lineno) - 1], (
                    f"{name_of(path)}:{node.lineno}: and no reason"
                )


def test_no_error_is_swallowed_unseen() -> None:
    """A bare ``except:`` or one that takes everything and goes on would turn an unknown into a guess."""
    for path in ENGINE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler):
                caught = "" if node.type is None else ast.unparse(node.type)
                again = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                assert again or caught not in ("", "Exception", "BaseException"), f"{name_of(path)}:{node.lineno}"


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_a_module_is_one_idea(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= 350, f"{lines} lines"
    first = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert first, "and says which"
