"""The house's walls (docs/architecture.md, The rooms), read from the imports: who may speak to whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import MUTANTS
from tests.simulation.disks.mutants import MUTANTS as OF_DISKS
from tests.support.mutate import Mutant

ROOT = Path(__file__).parents[3]
ENGINE, COMMANDS = ROOT / "retention_cli", ROOT / "cli" / "kretain"
PRODUCT = sorted([*ENGINE.rglob("*.py"), *COMMANDS.rglob("*.py")])
ROOMS = (
    *(
        "core",
        "policy",
        "brokers",
        "decide",
        "audit",
        "memory",
        "state",
        "observe",
        "disks",
        "plan",
        "archive",
        "evidence",
        "trim",
    ),
    *("reports", "advise", "profile", "forecast", "protect", "engines", "watch"),
)
"""The engine's rooms in the order in which data flows: none imports one that comes after it."""
PURE = [
    path
    for room, but in (
        ("core", ("clock", "extras", "files", "filesystems", "http", "signing", "state_dir", "subprocesses")),
        ("decide", ()),
    )
    for path in sorted((ENGINE / room).rglob("*.py"))
    if path.stem not in but
] + [
    ENGINE / f"{name}.py"
    for name in (
        *(
            "plan/value",
            "plan/reconcile",
            "trim/narrow",
            "watch/measured",
            "disks/disk",
            "protect/decision",
            "disks/pending_deletes",
            "disks/water_level",
            "observe/floors/fold",
            "observe/floors/standing",
        ),
        *(
            "memory/disk",
            "memory/positions",
            "memory/group",
            "memory/partition",
        ),
        *("memory/replica", "engines/fleet/plan"),
        "profile/hours",
        *(f"forecast/{name}" for name in ("cost", "loss", "steady", "value")),
    )
]
"""What is given all that it needs: facts, settings, now."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, anywhere in it: ``a.b`` and ``a.b.c`` for ``from a.b import c``."""
    found: list[str] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: a relative import"
            found += [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
    return tuple(found)


@cache
def files_of(module: str) -> tuple[Path, ...]:
    """The files that importing a module of ours reads first: itself, or what its package says."""
    head, _, rest = module.partition(".")
    place = {"retention_cli": ENGINE, "kretain": COMMANDS}.get(head)
    if place is None:
        return ()
    stem = place.joinpath(*rest.split(".")) if rest else place
    return tuple(file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.exists())


@cache
def brought_in(path: Path) -> frozenset[str]:
    """Every module of ours that importing a file brings in, the file's own included."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if name_of(one) not in found:
            found.add(name_of(one))
            waiting += [file for module in imports(one) for file in files_of(module)]
    return frozenset(found)


def importers_of(*modules: str) -> set[str]:
    return {
        name_of(path)
        for path in PRODUCT
        if any(one == module or one.startswith(f"{module}.") for one in imports(path) for module in modules)
    }


def calls(path: Path) -> Iterator[str]:
    """Every function that is called by its name: ``print``, ``time.time``, ``dt.datetime.now``."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_rooms_import_only_downwards() -> None:
    """Policy, brokers, decide, memory, observe, plan, trim: what flows goes one way, and so do the imports."""
    outside = [ENGINE / "__init__.py", ENGINE / "spark.py"]  # the version, and the name that notebooks import
    assert [path for path in outside if path.read_text(encoding="utf-8").count("\n") >= 20] == []
    for path in {*ENGINE.rglob("*.py")}.difference(outside):
        room = path.relative_to(ENGINE).parts[0]
        assert room in ROOMS, f"{name_of(path)} stands in no room"
        rooms = {module.split(".")[1] for module in imports(path) if module.startswith("retention_cli.")}
        assert not rooms & {*ROOMS[ROOMS.index(room) + 1 :]}, name_of(path)


def test_no_import_cycle_exists() -> None:
    """Wherever in a file the import stands: a function that imports late to get round a circle has found one."""
    done: set[Path] = set()

    def visit(path: Path, way: tuple[Path, ...]) -> None:
        assert path not in way, " → ".join(map(name_of, (*way[way.index(path) :], path)))
        if path not in done:
            for module in imports(path):
                for file in files_of(module):
                    if file not in (path, path.parent / "__init__.py"):
                        visit(file, (*way, path))
            done.add(path)

    for path in ENGINE.rglob("*.py"):
        visit(path, ())


def test_only_brokers_speaks_to_kafka() -> None:
    """And what starts a Kafka of its own, for the demo and the tests."""
    speakers = importers_of("kafka", "confluent_kafka")
    assert speakers
    assert {
        name for name in speakers if not name.startswith(("retention_cli/brokers/", "cli/kretain/embedded/"))
    } == set()


DELETER, ALTERER, WRITER, REPUBLISHER = (
    f"retention_cli/brokers/{name}.py" for name in ("deleter", "alterer", "writer", "republisher")
)


@pytest.mark.parametrize(
    ("request_of", "module"),
    [("DeleteRecordsRequest", DELETER), ("AlterConfigsRequest", ALTERER), ("NewTopic", WRITER)],
)
def test_only_one_module_makes_a_request_that_changes_a_cluster(request_of: str, module: str) -> None:
    """The embedded Kafka makes topics for the demo and the tests."""
    makers = {name_of(path) for path in PRODUCT if any(request_of in one for one in imports(path))}
    assert {name for name in makers if not name.startswith("cli/kretain/embedded/")} == {module}


@pytest.mark.parametrize(
    ("module", "importers"),
    [
        # Only trim holds an object that can delete (docs/architecture.md)
        ("retention_cli.brokers.deleter", {"retention_cli/trim/batches.py", "retention_cli/trim/run.py"}),
        (
            "retention_cli.trim.run",
            {
                *("retention_cli/watch/one_pass.py", "cli/kretain/api/cluster.py"),
                *("cli/kretain/commands/trim.py", "cli/kretain/flows/fleet_trim.py", "cli/kretain/flows/trims.py"),
            },
        ),
        (
            "retention_cli.trim.batches",
            {
                *("retention_cli/trim/run.py", "cli/kretain/flows/fleet_trim.py", "cli/kretain/flows/trims.py"),
                *(f"retention_cli/watch/{name}.py" for name in ("leader", "one_pass")),
            },
        ),
        ("retention_cli.watch.one_pass", {"retention_cli/watch/loop.py", "cli/kretain/commands/watch.py"}),
        ("kretain.flows.fleet_trim", {"cli/kretain/commands/trim.py"}),
        # a plan of protection has no object that can change a setting (docs/rules.md, P1)
        ("retention_cli.brokers.alterer", {"retention_cli/protect/run.py"}),
        ("retention_cli.protect.run", {"retention_cli/watch/one_pass.py", "cli/kretain/commands/protect.py"}),
        # what makes topics and appends to them is asked for by name, for named topics
        (
            "retention_cli.brokers.writer",
            {
                *("retention_cli/audit/shipping.py", "retention_cli/protect/memory.py", "retention_cli/protect/run.py"),
                *("retention_cli/state/own_topics.py", "cli/kretain/commands/setup.py"),
                "cli/kretain/commands/policy.py",
            },
        ),
        # an archive is written from what a reader reads: it can't change a cluster, and a restore is asked for by name
        (
            "retention_cli.brokers.republisher",
            {
                *("retention_cli/archive/restore.py", "retention_cli/archive/restore_groups.py"),
                "cli/kretain/commands/archive.py",
            },
        ),
        (
            "retention_cli.archive.restore",
            {
                *("cli/kretain/commands/archive.py", "cli/kretain/render/archive.py"),
                "retention_cli/archive/restore_groups.py",
            },
        ),
    ],
)
def test_what_changes_a_cluster_is_imported_only_where_it_is_asked_for(module: str, importers: set[str]) -> None:
    assert importers_of(module) == importers


@pytest.mark.parametrize(
    ("place", "module"),
    [
        *((f"retention_cli/{name}.py", DELETER) for name in ("plan/make", "engines/fleet/planning")),
        *((name_of(path), DELETER) for room in ("archive", "engines/spark") for path in (ENGINE / room).glob("*.py")),
        *((f"retention_cli/{name}.py", ALTERER) for name in ("protect/reading", "plan/make")),
        *(("cli/kretain/commands/plan.py", module) for module in (DELETER, ALTERER)),
        ("retention_cli/observe/cluster.py", WRITER),
        *((f"retention_cli/{name}.py", REPUBLISHER) for name in ("trim/batches", "archive/writer")),
        ("cli/kretain/commands/trim.py", REPUBLISHER),
    ],
)
def test_module_that_only_reads_does_not_bring_in_what_changes_a_cluster(place: str, module: str) -> None:
    assert module not in brought_in(ROOT / place)
    assert DELETER in brought_in(COMMANDS / "commands" / "trim.py"), "this would find it"


def test_archive_is_usable_without_a_command() -> None:
    """A Spark task archives one range: a reader and a store are all that it needs."""
    commands = ("cli/", "retention_cli/memory/ledger", "retention_cli/plan/make")
    assert not [one for one in brought_in(ENGINE / "archive" / "writer.py") if one.startswith(commands)]


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_decide_uses_no_clock_randomness_log_or_broker(path: Path) -> None:
    """The same facts, settings and now give the same decision (docs/architecture.md)."""
    impure = ("time", "random", "secrets", "logging", "os", "sys", "socket", "subprocess", "pathlib", "threading")
    assert not [one for one in imports(path) if one.partition(".")[0] in (*impure, "kafka", "confluent_kafka")]
    assert not [one for one in calls(path) if one.rpartition(".")[2] in ("now", "utcnow", "today", "open", "getenv")]
    brokers = ("retention_cli/brokers", "retention_cli/memory/ledger")
    assert not [name for name in brought_in(path) if name.startswith(brokers)]


def test_engine_uses_no_terminal() -> None:
    """No Typer, no rich, no printing: it travels to Spark executors."""
    for path in ENGINE.rglob("*.py"):
        heads = {one.partition(".")[0] for one in imports(path)}
        assert not heads & {"typer", "click", "rich", "kretain", "tabulate"}, name_of(path)
        assert not [one for one in calls(path) if one in ("print", "input", "sys.stdout.write")], name_of(path)


def test_log_dirs_are_opened_read_only() -> None:
    """No module of the inventory writes: the inventory is written by ``core/files.py``, completely or not at all."""
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
    for path in (ENGINE / "disks" / "inventory").glob("*.py"):
        called = {one.rpartition(".")[2] for one in calls(path) if not one.endswith(".fromtimestamp")}
        assert not called & writing, name_of(path)
        assert not [one for one in ("O_WRONLY", "O_RDWR", "O_CREAT", "mmap", "flock") if one in path.read_text()]


def test_no_error_is_swallowed_silently() -> None:
    """A bare ``except:`` or one that takes everything and goes on would turn an unknown into a guess."""
    for path in ENGINE.rglob("*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = "" if node.type is None else ast.unparse(node.type)
                again = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                assert again or caught not in ("", "Exception", "BaseException"), f"{name_of(path)}:{node.lineno}"


def test_module_has_at_most_500_lines() -> None:
    """It fits on a few screens."""
    lengths = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in PRODUCT}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


# -- where code of the tests lies: helpers in tests/support, and no test module behind another --


TESTS = Path(__file__).parents[2]
PROGRAMS = {"simulation", "kafka/faults", "mutants.py", "clients/python_client.py"}
"""What has tests, but runs by itself too: it keeps its modules together."""


def modules() -> list[Path]:
    return [path.relative_to(TESTS) for path in TESTS.rglob("*.py")]


def test_helper_module_of_tests_lives_only_in_support() -> None:
    helpers = [
        str(path)
        for path in modules()
        if path.parts[0] != "support"
        and not path.name.startswith(("test_", "conftest", "__init__"))
        and not PROGRAMS & {str(path), *map(str, path.parents)}
    ]
    assert helpers == []


def test_test_module_is_never_imported_by_another_module() -> None:
    found = {
        str(path): name
        for path in modules()
        for name in imports(TESTS / path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    }
    assert found == {}


# -- the lists of mutants follow the code: one that changes nothing proves nothing --


@pytest.mark.parametrize("mutants", [MUTANTS, OF_DISKS], ids=["all", "disks"])
def test_each_mutant_changes_something(mutants: tuple[Mutant, ...]) -> None:
    lost = [
        one.name for one in mutants if one.old not in (ROOT / "retention_cli" / one.file).read_text(encoding="utf-8")
    ]
    assert lost == []
    assert len({one.name for one in mutants}) == len(mutants)
