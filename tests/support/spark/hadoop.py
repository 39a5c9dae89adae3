"""Servers of Hadoop's world on this machine: YARN, with Spark that runs in it, HDFS, and ZooKeeper; and jars by Ivy."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import psutil
import pytest

from kretain.embedded import jars
from kretain.embedded.cluster import free_ports
from tests.support.processes import beside, locked, once, port_of
from tests.support.spark.clusters import HOST, Process, SparkProcesses, asked, own_folder, spark_home
from tests.support.world import wait_until

VERSION = "3.5.0"
"""Hadoop's, as PySpark's wheel has its client."""
_RM = "org.apache.hadoop.yarn.server.resourcemanager"
_NM = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_SMALL = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_SAID = ("stderr", "stdout", "prelaunch.err", "prelaunch.out")
LOGGING = """\
log4j.rootLogger=INFO, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


def resolved(group: str, artifact: str, version: str) -> Path:
    """Return a folder with the jars of an artifact and of all that it needs, downloaded once."""
    root = jars.cache_dir() / "jars"
    (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")

    def download(into: Path) -> None:
        command = [
            *(str(jars.find_java()), "-jar", str(ivy), "-cache", str(root / ".ivy")),
            *("-dependency", group, artifact, version),
            *("-confs", "default", "-types", "jar", "bundle", "maven-plugin"),
            *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert (into / f"{artifact}-{version}.jar").is_file(), done.stdout + done.stderr
        assert "FAILED DOWNLOADS" not in done.stdout, done.stdout

    return once(root / f"{artifact}-{version}", download)


@dataclass(frozen=True)
class Yarn:
    """A ResourceManager (``web`` is its page) and a NodeManager that has room for some small executors."""

    folder: Path
    web: str

    @property
    def environ(self) -> dict[str, str]:
        """What ``--master yarn`` needs beside :func:`tests.support.spark.clusters.environment`."""
        return {"HADOOP_CONF_DIR": str(self.folder / "conf")}

    def applications(self) -> list[dict[str, Any]]:
        """Return what the ResourceManager says of applications, the newest first."""
        found = (asked(f"{self.web}/ws/v1/cluster/apps").get("apps") or {}).get("app", [])
        return sorted(found, key=lambda one: -int(one["startedTime"]))

    def end(self, application: str) -> None:
        address = f"{self.web}/ws/v1/cluster/apps/{application}/state?user.name={getpass.getuser()}"
        kind = {"Content-Type": "application/json"}
        asking = urllib.request.Request(address, b'{"state": "KILLED"}', kind, method="PUT")  # noqa: S310
        urllib.request.urlopen(asking, timeout=30).close()  # noqa: S310  (our own, on loopback)

    def said(self, application: str) -> list[str]:
        """Return what each of an application's containers has said; the first is its master."""
        folders = sorted((self.folder / "logs" / application).glob("container_*"))
        files = [[one / name for name in _SAID if (one / name).is_file()] for one in folders]
        return ["\n".join(one.read_text(encoding="utf-8", errors="replace") for one in said) for said in files]

    def files(self) -> list[Path]:
        """Return every file that was made for containers, or by them: launch scripts, settings, logs."""
        places = (self.folder / "logs", self.folder / "local", self.folder / "staging")
        return [file for place in places for file in place.rglob("*") if file.is_file()]


@contextlib.contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """Run the two; whatever happens to the tests, they and their containers end."""
    cluster = Yarn(folder, _configure(folder))
    web, command = cluster.web, [*hadoop(), "-cp", f"{folder / 'conf'}:{hadoop_jars()}/*"]
    try:
        with SparkProcesses(folder) as processes:
            for name, main in (("resourcemanager", f"{_RM}.ResourceManager"), ("nodemanager", _NM)):
                processes.run(name, [*command, main], cluster.environ)

            def joined() -> bool:
                return asked(f"{web}/ws/v1/cluster/metrics").get("clusterMetrics", {}).get("activeNodes") == 1

            processes.wait_until(joined, "the NodeManager has joined")
            yield cluster
    finally:
        _end_containers(folder)


def hadoop() -> list[str]:
    """How one of Hadoop's processes is started: a small Java."""
    return [str(jars.find_java()), *_SMALL]


def hadoop_jars() -> Path:
    return resolved("org.apache.hadoop", "hadoop-minicluster", VERSION)


def _configure(folder: Path) -> str:
    """Write what the cluster and its clients read; return the address of the ResourceManager's page."""
    ports = iter([f"{HOST}:{port}" for port in free_ports(8)])
    manager, node = "yarn.resourcemanager", "yarn.nodemanager"
    page = next(ports)
    settings = {
        f"{manager}.webapp.address": page,
        f"{manager}.address": next(ports),
        f"{manager}.scheduler.address": next(ports),
        f"{manager}.resource-tracker.address": next(ports),
        f"{manager}.admin.address": next(ports),
        f"{manager}.scheduler.class": f"{_RM}.scheduler.fifo.FifoScheduler",
        "yarn.scheduler.minimum-allocation-mb": "128",
        f"{node}.hostname": HOST,
        f"{node}.address": next(ports),
        f"{node}.localizer.address": next(ports),
        f"{node}.webapp.address": next(ports),
        f"{node}.local-dirs": str(folder / "local"),
        f"{node}.log-dirs": str(folder / "logs"),
        f"{node}.resource.memory-mb": "4096",
        f"{node}.resource.cpu-vcores": "4",
        f"{node}.vmem-check-enabled": "false",
        f"{node}.pmem-check-enabled": "false",
        # A machine whose disk is nearly full is good enough for tests.
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        f"{node}.disk-health-checker.min-free-space-per-disk-mb": "0",
        # What containers leave is looked at after they are gone.
        f"{node}.delete.debug-delay-sec": "36000",
    }
    conf = folder / "conf"
    conf.mkdir()
    write_xml(conf / "yarn-site.xml", settings)
    write_xml(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "hadoop")})
    (conf / "log4j.properties").write_text(LOGGING)
    # As whoever runs a cluster has it: each job would send Spark's own jars (400 MB) along.
    own = {"spark.yarn.jars": f"local:{spark_home()}/jars/*", "spark.yarn.stagingDir": (folder / "staging").as_uri()}
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in own.items()))
    return f"http://{page}"


def write_xml(file: Path, settings: Mapping[str, str]) -> None:
    rows = (f"<property><name>{key}</name><value>{escape(value)}</value></property>" for key, value in settings.items())
    file.write_text("\n".join(["<configuration>", *rows, "</configuration>\n"]))


def _end_containers(folder: Path) -> None:
    """A NodeManager ends its own; where it was killed, they go when their driver is gone, or else now."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not _containers(folder), "the end of containers", 20)
    for pid in _containers(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _containers(folder: Path) -> list[int]:
    """The processes of this cluster's containers, by the folder that stands in their commands."""
    found = psutil.process_iter(["cmdline"])
    return [one.pid for one in found if one.pid != os.getpid() and f"{folder}/" in str(one.info["cmdline"])]


@pytest.fixture(scope="session")
def spark_yarn() -> Iterator[Yarn]:
    """A YARN that no test may harm."""
    with own_folder() as folder, yarn(folder) as cluster:
        yield cluster


_SERVER = "org.apache.hadoop.hdfs.server"


@dataclass(frozen=True)
class Hdfs:
    """A name node that answers at ``url``, and what its clients have in their environment."""

    url: str
    environ: dict[str, str]
    name_node: Process


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
        processes.run("datanode", [*command, f"{_SERVER}.datanode.DataNode"])
        status = f"http://{HOST}:{page}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"

        def ready() -> bool:
            found = asked(status).get("beans") or [{}]
            return found[0].get("NumLiveDataNodes") == 1 and found[0].get("FSState") == "Operational"

        processes.wait_until(ready, "a data node has joined")
        # libhdfs knows no wildcards; its own log is for errors alone.
        (folder / "client").mkdir()
        (folder / "client" / "log4j.properties").write_text(LOGGING.replace("INFO", "ERROR"))
        path = [str(folder / "client"), str(conf), *(str(jar) for jar in sorted(lib.glob("*.jar")))]
        yield Hdfs(url, {"CLASSPATH": ":".join(path)}, name_node)


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
    java, source = jars.find_java().resolve().parents[1], crate / "libhdfs" / "hdfs_3_3"
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


_ZOOKEEPER = """
tickTime=500
dataDir={folder}/data
clientPort=0
clientPortAddress=127.0.0.1
admin.enableServer=false
"""


@contextlib.contextmanager
def zookeeper(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server on a port that it chooses itself; give its address, and its process to kill."""
    (folder / "data").mkdir(parents=True)
    (folder / "zoo.cfg").write_text(_ZOOKEEPER.format(folder=folder))
    command = [str(jars.find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{spark_home()}/jars/*"]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]
    with beside(command, folder) as process:
        yield f"127.0.0.1:{port_of(process, folder)}", process
