"""The packages of ``make dist``: what is in them, and that a bare environment runs kretain from the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.thorough  # it builds and installs


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_wheel_contains_types_completions_and_manual_pages_but_no_tests(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {"kretain/py.typed", "retention_cli/py.typed", "kretain/__init__.pyi"} <= names
    shared = {name.partition(".data/data/share/")[2] for name in names if ".data/data/share/" in name}
    completions = {"bash-completion/completions/kretain", "zsh/site-functions/_kretain"}
    assert completions | {"fish/vendor_completions.d/kretain.fish", "man/man1/kretain-plan.1"} <= shared
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_source_package_builds_alone_and_contains_the_docs(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
        modes = {one.name.partition("/")[2]: one.mode for one in source.getmembers()}
    assert {"pyproject.toml", "README.md", "LICENSE", "docs/policy.md", "completions/kretain.bash"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/"))]
    assert {"docs/runbooks/lib.sh", "docs/runbooks/undo.md"} <= names
    assert modes["docs/runbooks/undo.sh"] & 0o111, "runbooks can be run"


def test_wheel_in_a_bare_environment_runs_and_names_missing_extras(dist: Path, tmp_path: Path) -> None:
    """No extra is installed: commands work, and a missing part is named with the command for this wheel."""
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=True)
    wheel = next(dist.glob("*.whl"))
    pip = [str(bare / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel)]
    assert subprocess.run(pip, timeout=300, check=False).returncode == 0
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KRETAIN_", "PYTHON"))}
    environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")  # a Kafka in it would start: only its download needs the extra

    def kretain(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(bare / "bin" / "kretain"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=60, check=False
        )

    assert kretain("--version").stdout == "kretain 0.1.0\n"
    assert "kretain_completion" in kretain("completion", "bash").stdout
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ntopics:\n  - match: a\n    retention.commitoffset.enable: true\n"
        "    retention.commitoffset.hours: 1\n    archive: /archive\n"
    )
    lacks = kretain("archive", "list", "./archive/")
    assert lacks.returncode == 1
    assert f"Parquet needs pyarrow: pip install '{wheel}[parquet]'" in lacks.stderr
    (tmp_path / "log" / "a-0").mkdir(parents=True)
    (tmp_path / "msk.properties").write_text("security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n")
    (tmp_path / "kerberos.properties").write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n"
    )
    for extra, asked in (
        ("spark", ["plan", "a", "-b", "127.0.0.1:1", "--older-than", "1d", "--spark"]),
        ("spark", ["profile", "a", "-b", "127.0.0.1:1", "--spark"]),
        ("parquet", ["segments", "scan", str(tmp_path / "log"), "--broker-id", "1", "--out", "seen.parquet"]),
        ("metrics", ["watch", "-b", "127.0.0.1:1", "-p", "policy.yaml"]),
        ("aws", ["plan", "a", "-b", "127.0.0.1:1", "-c", "msk.properties", "--older-than", "1d"]),
        ("kerberos", ["groups", "-c", "kerberos.properties"]),
        ("demo", ["demo"]),
    ):
        lacks = kretain(*asked)
        assert lacks.returncode in (1, 2), (asked, lacks.stderr)
        assert f"pip install '{wheel}[{extra}]'" in lacks.stderr, (asked, lacks.stderr)
        assert "internal error" not in lacks.stderr
    unreachable = kretain("plan", "-b", "127.0.0.1:1", "-p", "policy.yaml", "--timeout", "1s")
    assert (unreachable.returncode, unreachable.stdout) == (1, "")
    assert (bare / "share" / "man" / "man1" / "kretain.1").is_file()
    assert list((bare / "lib").glob("python*/site-packages/kretain/**/*.pyc")), "compiled when it was installed"
