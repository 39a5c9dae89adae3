"""A real HDFS on this machine: Hadoop's NameNode and a DataNode, resolved as tests/support/spark/yarn.py does."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kretain.embedded.node import free_ports
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


def has_libhdfs() -> bool:
    """Return whether the tests were told of a libhdfs.so. It is native: no jar and no wheel has it."""
    places = [os.environ.get("ARROW_LIBHDFS_DIR", ""), os.environ.get("HADOOP_HOME", "") + "/lib/native"]
    return any((Path(place) / "libhdfs.so").is_file() for place in places if place)


@pytest.fixture(scope="session")
def hadoop_files() -> Iterator[Hdfs]:
    """An HDFS that no test may harm."""
    with own_folder() as folder, hdfs(folder) as cluster:
        yield cluster
