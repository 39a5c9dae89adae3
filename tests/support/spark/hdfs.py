"""A real HDFS on this machine: Hadoop's NameNode and a DataNode, resolved as tests/support/spark/yarn.py does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kretain.embedded import jars
from kretain.embedded.java import find_java
from kretain.embedded.node import free_ports
from tests.support.processes import locked
from tests.support.spark.clusters import HOST, Process, SparkProcesses, asked, own_folder
from tests.support.spark.yarn import LOGGING, hadoop, hadoop_jars, write_xml

_SERVER = "org.apache.hadoop.hdfs.server"


@dataclass(frozen=True)
class Hdfs:
    """A name node that answers at ``url``, what its clients have in their environment, and its one data node."""

    url: str
    environ: dict[str, str]
    name_node: Process
    data_node: Process


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """Run the two; whatever happens to the tests, they end."""
    conf, lib = folder / "conf", hadoop_jars()
    port, page, *others = free_ports(5)
    url = f"hdfs://{HOST}:{port}"
    for place in ("hdfs", "datanode", "static"):  # of their pages, which the jars don't have; they want the folders
        (conf / "webapps" / place).mkdir(parents=True)
    write_xml(conf / "core-site.xml", {"fs.defaultFS": url, "hadoop.tmp.dir": str(folder / "hadoop")})
    settings = {
        "dfs.replication": "1",
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.namenode.http-address": f"{HOST}:{page}",
        "dfs.datanode.address": f"{HOST}:{others[0]}",
        "dfs.datanode.http.address": f"{HOST}:{others[1]}",
        "dfs.datanode.ipc.address": f"{HOST}:{others[2]}",
        "dfs.datanode.hostname": HOST,
    }
    write_xml(conf / "hdfs-site.xml", settings)
    (conf / "log4j.properties").write_text(LOGGING)
    command = [*hadoop(), "-cp", f"{conf}:{lib}/*"]
    form = [*command, f"{_SERVER}.namenode.NameNode", "-format", "-nonInteractive"]
    subprocess.run(form, check=True, capture_output=True, timeout=120)
    with SparkProcesses(folder) as processes:
        name_node = processes.run("namenode", [*command, f"{_SERVER}.namenode.NameNode"])
        data_node = processes.run("datanode", [*command, f"{_SERVER}.datanode.DataNode"])
        status = f"http://{HOST}:{page}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"

        def ready() -> bool:
            found = asked(status).get("beans") or [{}]
            return found[0].get("NumLiveDataNodes") == 1 and found[0].get("FSState") == "Operational"

        processes.wait_until(ready, "a data node has joined")
        # libhdfs knows no wildcards; its own log is for errors alone.
        (folder / "client").mkdir()
        (folder / "client" / "log4j.properties").write_text(LOGGING.replace("INFO", "ERROR"))
        path = [str(folder / "client"), str(conf), *(str(jar) for jar in sorted(lib.glob("*.jar")))]
        yield Hdfs(url, {"CLASSPATH": ":".join(path)}, name_node, data_node)


def libhdfs() -> Path:
    """Return the folder of a libhdfs.so: the one that the environment names, or one that is compiled here.

    It is native: no jar and no wheel has it. The crate has Hadoop's source of it.
    """
    for place in [os.environ.get("ARROW_LIBHDFS_DIR", ""), os.environ.get("HADOOP_HOME", "") + "/lib/native"]:
        if place and (Path(place) / "libhdfs.so").is_file():
            return Path(place)
    cargo, compiler = shutil.which("cargo") or Path.home() / ".cargo" / "bin" / "cargo", shutil.which("cc")
    if not Path(cargo).is_file() or compiler is None:
        pytest.skip("no libhdfs.so: ARROW_LIBHDFS_DIR names its folder, or install cargo and a C compiler")
    folder = jars.cache_dir() / "libhdfs"
    with locked(jars.cache_dir() / ".libhdfs"):
        if not (folder / "libhdfs.so").is_file():
            folder.mkdir(exist_ok=True)
            _compile(str(cargo), compiler, folder)
    return folder


def _compile(cargo: str, compiler: str, folder: Path) -> None:
    (folder / "Cargo.toml").write_text(_CRATE)
    (folder / "lib.rs").touch()
    command = [cargo, "metadata", "--format-version", "1", "--manifest-path", str(folder / "Cargo.toml")]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=300).stdout)
    (crate,) = (Path(one["manifest_path"]).parent for one in found["packages"] if one["name"] == "hdfs-sys")
    java, source = find_java().resolve().parents[1], crate / "libhdfs" / "hdfs_3_3"
    headers = (crate / "libhdfs", source, source / "include", source / "os/posix", java / "include")
    jvm = java / "lib" / "server"
    command = [
        *(compiler, "-w", "-shared", "-fPIC", "-fcommon", "-o", str(folder / "part.so")),
        *(f"-I{one}" for one in (*headers, source / "os", java / "include/linux")),
        *(str(one) for one in (*source.glob("*.c"), *source.glob("os/posix/*.c"))),
        *(f"-L{jvm}", "-ljvm", "-lpthread", "-ldl", f"-Wl,-rpath,{jvm}"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (folder / "part.so").rename(folder / "libhdfs.so")


_CRATE: Final = """\
[package]
name = "libhdfs"
version = "0.0.0"
[lib]
path = "lib.rs"
[dependencies]
hdfs-sys = "=0.3.1"
"""


@pytest.fixture(scope="session")
def hadoop_files() -> Iterator[Hdfs]:
    """An HDFS that no test may harm."""
    with own_folder() as folder, hdfs(folder) as cluster:
        yield cluster
