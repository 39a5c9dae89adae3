"""``kretain demo``, as a script and as a person would run it: what it shows is true, and nothing of it stays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kretain.embedded.demo import FLIGHTS, TOPICS, WEATHER
from tests.support.processes import processes_of
from tests.support.says import says
from tests.support.terminal import Terminal
from tests.support.world import World, wait_until, written

STEPS = (
    "1. The data",
    "2. The policy",
    "3. Where consumers stand",
    "4. The plan",
    "5. Why no further?",
    "6. The rehearsal",
    "7. The trim",
    "8. What is left",
)
DEMO = [sys.executable, "-m", "kretain", "demo"]


@dataclass
class Place:
    """Where a demo runs: its temporary folders would be in ``scratch``, its user's state in ``state``."""

    folder: Path
    environ: dict[str, str]

    def check_that_nothing_stayed(self) -> None:
        wait_until(lambda: not processes_of(self.folder / "scratch"), "the end of every process", 20)
        assert list((self.folder / "scratch").iterdir()) == []
        assert not (self.folder / "state").exists(), "its audit log is its own"


def place(folder: Path) -> Place:
    """Return the environment of somebody with clusters of their own, which are none of the demo's business."""
    config = written(
        folder / "config.yaml",
        "contexts: {prod: {bootstrap-server: 'prod.invalid:9092', settings: {security.protocol: SSL}}}\n"
        "default-context: prod\n",
    )
    (folder / "scratch").mkdir()
    environ = {
        **os.environ,
        "TMPDIR": str(folder / "scratch"),
        "XDG_STATE_HOME": str(folder / "state"),
        "KRETAIN_CONFIG": str(config),
        "KRETAIN_BOOTSTRAP_SERVER": "prod.invalid:9092",
        "KRETAIN_OUTPUT": "json",
        "KRETAIN_UNCONSUMED": "trim",
    }
    return Place(folder, environ)


@pytest.fixture(scope="module", autouse=True)
def piped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, subprocess.Popen[bytes]]]:
    """The demo in a pipe runs while the one in a terminal does: two on one machine are none of each other's business."""
    where = place(tmp_path_factory.mktemp("piped"))
    with (where.folder / "out").open("wb") as out, (where.folder / "err").open("wb") as err:
        process = subprocess.Popen(DEMO, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=where.environ)
    yield where, process
    process.kill()
    process.wait()


def table(text: str, command: str) -> dict[str, list[str]]:
    """Return a command's rows by partition: those of the last time that it was run."""
    shown = text.rpartition(f"$ {command}\n")[2]
    return {
        cells[0]: cells[1:]
        for cells in (re.split(r" {2,}", line.strip()) for line in shown.split("\n\n")[0].splitlines())
        if cells[0].rpartition("-")[0] in TOPICS
    }


@pytest.mark.long
def test_demo_in_a_terminal_stops_at_no_and_keeps_the_broker_with_keep(
    tmp_path: Path,
) -> None:
    where = place(tmp_path)
    with Terminal([*DEMO, "--keep"], columns=80, environ=where.environ) as terminal:
        for step in range(6):  # between the seven steps up to the question
            terminal.read_until(f"{step + 1}. ", 200)
            assert f"{step + 2}. " not in terminal.text.rpartition("$ ")[2]
            terminal.read_until("Press Enter", 60)
            terminal.type("\n")
        terminal.read_until("[y/N]", 60)
        terminal.type("n\n")
        terminal.read_until("Press Enter", 60)
        terminal.type("\n")
        text = terminal.read_until("plan weather --older-than 3d")
        says(text, "You answered no", "7. The trim", never=["records trimmed"])
        prose = [line for line in text.splitlines() if "─" not in line]
        assert [line for line in prose if len(line) > 80 and not re.match(r"export |/", line)] == []

        (address,) = re.findall(r"The broker stays up at (\S+) until Ctrl-C", text)
        world = World(address, tmp_path)
        ends = {topic: [world.ends(topic, number) for number in range(count)] for topic, count in TOPICS.items()}
        assert {start for pairs in ends.values() for start, _end in pairs} == {0}
        totals = {topic: sum(end for _start, end in pairs) for topic, pairs in ends.items()}
        assert (totals["flights"], totals["weather"]) == (FLIGHTS, WEATHER)

        plan = subprocess.run(
            [sys.executable, "-m", "kretain", "plan", "--detailed-exitcode"],
            env={**os.environ, **dict(re.findall(r"export (KRETAIN_\w+)=(\S+)", text))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (plan.returncode, plan.stderr) == (3, ""), "what it says to type works, and there is all to trim"

        terminal.type("\x03")
        assert terminal.wait() == 0
        assert terminal.text.rstrip().endswith("kretain: stopping the broker")
    where.check_that_nothing_stayed()


def test_demo_in_a_pipe_runs_every_step_without_asking(piped: tuple[Place, subprocess.Popen[bytes]]) -> None:
    where, process = piped
    code, out, err = process.wait(200), *((where.folder / name).read_text() for name in ("out", "err"))
    assert code == 0, err
    where.check_that_nothing_stayed()
    assert [line for line in out.splitlines() if line in STEPS] == list(STEPS)
    says(" ".join(out.split()), "Without a terminal kretain cannot ask.", never=["\x1b"])

    planned = table(out.partition("5. Why")[0], "kretain plan")
    trimmed = table(out, "kretain trim --yes")
    assert len(planned) == sum(TOPICS.values())
    going = {name: row for name, row in planned.items() if row[0] == "trim"}
    assert {name for name in planned if name not in going} == {"weather-2"}, "the partition of unknown floor"
    done = {name: ["trimmed", row[1].removeprefix("0 → ")] for name, row in going.items()}
    assert {name: trimmed[name][:2] for name in going} == done
    assert trimmed["weather-2"][0] == "held"
    records = sum(int(row[2].replace(",", "")) for row in going.values())
    assert f"\n{records:,} records trimmed, about" in out

    after = out.partition("8. What is left")[2]
    assert {name: row[0] for name, row in table(after, "kretain plan").items()} == {"weather-2": "hold"}
    says(after, f"No changes. {len(going)} partitions up to date, 1 on hold.", "\n1 run of cluster ")

    assert all(line.startswith("kretain: ") for line in err.splitlines()), "progress, and nothing else"
    assert "starting 1 Kafka node" in err
