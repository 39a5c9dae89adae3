"""A real S3 server on this machine, for the tests: S3Proxy over a folder, resolved as Kafka's jars are."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kretain.embedded import reaper
from kretain.embedded.java import find_java
from kretain.embedded.node import free_ports
from tests.support import ivy
from tests.support.world import wait_until

VERSION = "3.0.0"
NAME, SECRET = "AKIAEXAMPLE", "hush-4b1e77"
_QUIET = "<configuration><root level='off'/></configuration>"


@dataclass(frozen=True)
class S3:
    """The server: an archive's URL in it, the folder with its objects, and what its clients have in their environment."""

    url: str
    folder: Path
    environ: dict[str, str]


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """Run a server with the bucket ``backup``; whatever happens to the tests, it ends."""
    java = find_java()
    lib = ivy.resolved("org.gaul", "s3proxy", VERSION)
    port = free_ports(1)[0]
    (folder / "objects" / "backup").mkdir(parents=True)
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": NAME,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "x",
        "jclouds.credential": "x",
        "jclouds.filesystem.basedir": str(folder / "objects"),
    }
    (folder / "s3.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (folder / "logback.xml").write_text(_QUIET)
    command = [
        *(str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        *(f"-Dlogback.configurationFile={folder / 'logback.xml'}", "-cp", f"{lib}/*"),
        *("org.gaul.s3proxy.Main", "--properties", str(folder / "s3.properties")),
    ]
    watcher = subprocess.Popen([sys.executable, reaper.__file__], stdin=subprocess.PIPE, start_new_session=True)
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    assert watcher.stdin is not None
    watcher.stdin.write(f"{server.pid} {reaper.start_time(server.pid)}\n".encode())
    watcher.stdin.flush()
    try:

        def up() -> bool:
            assert server.poll() is None, (folder / "s3.log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(up, "the S3 server listens")
        yield S3(
            f"s3://backup/kafka?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}",
            folder / "objects" / "backup" / "kafka",
            {
                "AWS_ACCESS_KEY_ID": NAME,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_EC2_METADATA_DISABLED": "true",
                # Of a store that does not know the newest checksums, as docs/archive.md has it.
                "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
                "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
            },
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        watcher.stdin.close()
        watcher.wait()
