"""A real Azure Blob Storage on this machine, for the tests: Azurite, which is npm's."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs
import pytest

from kretain.embedded import reaper
from kretain.embedded.node import free_ports
from tests.support.world import wait_until

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everyone knows."""


@dataclass(frozen=True)
class Azure:
    """The server: an archive's URL in it, and what its clients have in their environment."""

    url: str
    environ: dict[str, str]


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[Azure]:
    """Run a server with the container ``backup``; whatever happens to the tests, it ends."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no npm")
    run = subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "azurite"], check=False)
    if run.returncode:
        pytest.skip("npm can't install Azurite here")
    port = free_ports(1)[0]
    command = [node, str(folder / "node_modules/azurite/dist/src/blob/main.js"), "--silent", "--inMemoryPersistence"]
    command += ["--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry"]
    watcher = subprocess.Popen([sys.executable, reaper.__file__], stdin=subprocess.PIPE, start_new_session=True)
    with (folder / "azurite.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    assert watcher.stdin is not None
    watcher.stdin.write(f"{server.pid} {reaper.start_time(server.pid)}\n".encode())
    watcher.stdin.flush()
    try:

        def up() -> bool:
            assert server.poll() is None, (folder / "azurite.log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(up, "Azurite listens")
        place = f"127.0.0.1:{port}"
        files = pyarrow.fs.AzureFileSystem(
            ACCOUNT, account_key=KEY, blob_storage_authority=place, dfs_storage_authority=place,
            blob_storage_scheme="http", dfs_storage_scheme="http",
        )  # fmt: skip
        files.create_dir("backup")
        yield Azure(
            f"abfs://backup@{ACCOUNT}.dfs.core.windows.net/kafka?"
            f"blob_storage_authority={place}&dfs_storage_authority={place}&scheme=http",
            {"AZURE_STORAGE_KEY": KEY},
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        watcher.stdin.close()
        watcher.wait()
