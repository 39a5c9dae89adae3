"""Open Spark, by ``--master`` or Spark's own configuration: local, standalone, YARN, Kubernetes, Connect.

And check what executors need before any work is sent: an error names the missing part and its machine.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import platform
import re
import socket
import sys
import warnings
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

import retention_cli
from retention_cli.core.extras import how_to_add

LOG: Final = "spark.log"
"""The file with Spark's own output, in the run's folder."""
REDACTED: Final = "(?i)secret|password|token|access[.]?key|credential|sasl|jaas|ssl[.]key|[.]pem"
"""Matches the names of settings whose values Spark must not show."""
_NAMED: Final = re.compile(r"(?!.*PythonException)[\w.]*(Error|Exception|Interrupt)\b: ")
_LOCAL: Final = re.compile(r"local\[(\d+|\*)\]")
_ATTEMPTS: Final = 4
"""Spark's own default for clusters; ``local[N]`` runs no task again."""
_DETAILS: Final = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
_TASK: Final = "most recent failure: "
_CLASS: Final = re.compile(r"\borg\.apache\.spark\.[\w.]*(?:Exception|Error): ")
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""Halves the CPU seconds that Spark's own process takes for a plan."""
_AT_START: Final = re.compile(r'Exception in thread "main" (?:[\w.$]+: )?(.+)')
_QUIET_LOG: Final = """\
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.heartbeat.name = org.apache.spark.executor.Executor
logger.heartbeat.level = off
"""


DRIVER_MEMORY: Final = "2g"
"""The driver's memory unless the user sets it. With ``local`` tasks share it, but for their Python."""
_SQL: Final = {
    # No limit, in effect: with one, Spark sums up a batch's buffers after every row, which for rows as wide as these
    # takes ten times as long as everything else. Batches have at most 10,000 rows anyway.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""Settings of queries, unless the user sets others."""


class SparkError(Exception):
    """Spark can't be used; the text says what is missing and what to do."""


def is_connect(master: str | None) -> bool:
    """Return whether the master is the address of a Spark Connect server."""
    return master is not None and master.startswith("sc://")


def open_session(master: str | None, conf: Mapping[str, str], folder: Path) -> Any:
    """Return a session, with kretain's own code sent to the executors.

    Args:
        master: ``local[2]``, ``spark://…``, ``yarn``, ``k8s://…``, ``sc://…``; None: Spark's own configuration, else
            all cores of this machine.
        conf: further settings of Spark.
        folder: a temporary folder of this run.

    Raises:
        SparkError: PySpark or Java is missing, or the master does not answer.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SparkError(f"--spark needs PySpark: {how_to_add('spark')}")
    try:
        session = _connect(str(master), conf) if is_connect(master) else _classic(master, conf, folder)
        ship_code(session, folder)
    except Exception as error:  # noqa: BLE001  (PySpark's own, Py4J's, gRPC's: all mean the same here)
        text = last_lines(error)
        if text.startswith("[JAVA_GATEWAY_EXITED]"):
            text = start_failure(folder / LOG) or text
        raise SparkError(f"Spark at {master or 'its default master'} can't be used: {text}") from None
    return session


def _connect(url: str, conf: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(url).appName("kretain").config(map=_SQL | dict(conf)).getOrCreate()
    _try_again(session, 5)  # about 20 seconds
    return session


def _try_again(session: Any, times: int) -> None:
    """Limit a Connect client to this many retries: by default it retries for ten minutes if the server is down."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the resulting error is reported
    session.client.set_retry_policies([DefaultPolicy(max_retries=times)])


def stop_session(session: Any) -> None:
    """Stop a session, even if Spark has already ended."""
    from py4j.protocol import Py4JError

    if _over_connect(session):
        _try_again(session, 0)
    with suppress(OSError, Py4JError):
        session.stop()


def _classic(master: str | None, conf: Mapping[str, str], folder: Path) -> Any:
    from pyspark.conf import SparkConf
    from pyspark.sql import SparkSession

    given = dict(SparkConf().getAll()) | dict(conf)  # includes the settings of spark-submit
    master = master or given.get("spark.master") or "local[*]"
    if (local := _LOCAL.fullmatch(master)) is not None:  # else a Python worker that is killed ends the job
        master = f"local[{local[1]},{_ATTEMPTS}]"
    log = folder / "log4j2.properties"
    log.write_text(_QUIET_LOG, encoding="utf-8")
    defaults = _SQL | {
        "spark.master": master,
        "spark.app.name": "kretain",
        "spark.driver.memory": DRIVER_MEMORY,  # with any master, the driver runs on this machine and starts with it
        "spark.redaction.regex": REDACTED,
        "spark.ui.showConsoleProgress": "false",
        # A speculative copy of a task would read everything again.
        "spark.speculation": "false",
    }
    if master.startswith("local"):
        defaults |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 2)),
        }
    if (python := given.get("spark.pyspark.python")) is not None:
        os.environ["PYSPARK_PYTHON"] = python  # the only place where PySpark looks
    elif master.startswith(("local", "spark://")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Of two options that differ the last counts.
    driver = f"-Dlog4j2.configurationFile={log.as_uri()} {_QUICK} {given.get(_DRIVER_OPTIONS, '')}".strip()
    builder = SparkSession.builder.config(map=defaults | given | {"spark.master": master, _DRIVER_OPTIONS: driver})
    if not logging.root.handlers:  # Py4J logs each broken connection there, with a traceback; kretain reports it itself
        logging.root.addHandler(logging.NullHandler())
    with _stderr_to(folder / LOG):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:  # it would print a traceback if the JVM ends, which is reported by the job that waits
        server.handle_error = lambda *_: None
    return session


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Redirect the stderr of a JVM that is started within this context to a file, for the JVM's lifetime."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def runs_here(session: Any) -> bool:
    """Return whether tasks run on this machine, in a local Spark of this process."""
    return not _over_connect(session) and str(session.sparkContext.master).startswith("local")


def slots(session: Any) -> int:
    """Return how many tasks may run at once; of a server over Connect, which does not report it, a guess."""
    return 8 if _over_connect(session) else max(1, int(session.sparkContext.defaultParallelism))


def _over_connect(session: Any) -> bool:
    return getattr(session, "_jsc", None) is None


def ship_code(session: Any, folder: Path) -> None:
    """Send the engine to the executors as a zip, so they need no kretain installed. The same code is sent once."""
    path = zip_engine(folder)
    if _over_connect(session):
        session.addArtifacts(str(path), pyfile=True)
    elif not any(one.rpartition("/")[2] == path.name for one in session.sparkContext.listFiles):
        session.sparkContext.addPyFile(str(path))


def ship_file(session: Any, path: Path) -> None:
    """Send a file to the executors, by Spark's own distribution of files."""
    if _over_connect(session):
        session.addArtifacts(str(path), file=True)
    else:
        session.sparkContext.addFile(str(path))


def shipped(name: str) -> Path:
    """Return where a file that Spark distributed lies, in a task."""
    from pyspark import SparkFiles

    return Path(SparkFiles.get(name))


def scratch() -> str:
    """Return Spark's own folder for files, in a task."""
    from pyspark import SparkFiles

    return str(SparkFiles.getRootDirectory())


def zip_engine(folder: Path) -> Path:
    """Zip ``retention_cli`` as it runs here; return the file, which is named after its content."""
    root = Path(retention_cli.__file__).parent
    made = folder / "kretain-engine.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.suffix in (".py", ".json"):  # (JSON: the schemas of the brokers' protocol)
                archive.write(file, Path("retention_cli") / file.relative_to(root))
    digest = hashlib.sha256(made.read_bytes()).hexdigest()[:12]
    return made.rename(folder / f"kretain-engine-{retention_cli.__version__}-{digest}.zip")


def start_failure(log: Path) -> str | None:
    """Return why Spark's JVM did not start (no such master, no ``HADOOP_CONF_DIR`` for YARN, no Java), from its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    texts = [line.strip() for line in lines if line.strip() and not line.startswith("WARNING: ")]
    return next((found[1] for line in texts if (found := _AT_START.match(line))), texts[0] if texts else None)


def last_lines(error: BaseException) -> str:
    """Return the line of a Spark error that names the cause, such as the last line of a worker's traceback."""
    if grpc := _DETAILS.search(str(error)):
        return grpc[1]
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    aborted = next((line.partition(_TASK)[2] for line in lines if _TASK in line), "")
    python = [line for line in lines if _NAMED.match(line) and not line.startswith(("org.", "java."))]
    first = next((line for line in lines if not line.startswith("An error occurred while calling ")), "")
    return python[-1] if python else _CLASS.sub("", aborted or first or type(error).__name__)


_SPARKS_PACKAGES: Final = ("pyspark", "py4j", "grpc")
_REMEDIES: Final = (
    (
        ("OutOfMemoryError", "memory limits", "exit code 137", "exited with code 137"),
        "give it more memory (--spark-conf spark.driver.memory=4g, spark.executor.memory=4g), then run again",
    ),
    (
        ("Cannot run program", "Python worker exited", "Python worker failed"),
        "check the executors' logs: is it the Python that you mean (PYSPARK_PYTHON), and does it have enough memory?",
    ),
    (
        ("UNAVAILABLE", "Connection refused", "SESSION_NOT_FOUND", "was shut down", "Master removed", "is gone"),
        "check that Spark is up, then run again",
    ),
    (("ExecutorLostFailure", "executor lost", "FetchFailed"), "check the executors' logs, then run again"),
)


def as_spark_error(error: BaseException) -> SparkError | None:
    """Return a Spark error with a readable text; None if the error is not Spark's.

    PySpark, Py4J and gRPC have errors of their own; if Spark's process has ended, they raise the system's.
    """
    theirs = type(error).__module__.partition(".")[0] in _SPARKS_PACKAGES
    if not theirs and not (isinstance(error, OSError | EOFError) and _raised_by_spark(error)):
        return None
    text = last_lines(error)
    if not theirs or type(error).__name__ == "Py4JNetworkError":
        text = f"its process on this machine is gone ({text})"
    fitting = (todo for signs, todo in _REMEDIES if any(sign in f"{text} {error}" for sign in signs))
    remedy = next(fitting, "run again; -vv shows where it happened")
    return SparkError(f"Spark could not carry it out: {text.rstrip('.')}; {remedy}")


def _raised_by_spark(error: BaseException) -> bool:
    modules = (str(frame.f_globals.get("__name__", "")) for frame, _line in walk_tb(error.__traceback__))
    return any(name.partition(".")[0] in _SPARKS_PACKAGES for name in modules)


NEEDED: Final = {
    "confluent_kafka": "confluent-kafka",
    "kafka": "kafka-python",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "cryptography": "cryptography",
    "javaproperties": "javaproperties",
    "pydantic": "pydantic",
    "re2": "google-re2",
    "yaml": "PyYAML",
}
"""The modules that executors import, and their distributions. Some are native, and can't be imported from a zip."""

_ENDED: Final = "SparkContext was shut down"
"""In the error if the application was ended from outside: by YARN's administrator or by resource preemption."""
_FAILS: Final = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)
"""The errors that an import raises if the part is missing, broken, or of another version."""


def probe(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield one row with the parts that are missing on the executor where this runs.

    Reads all input: Spark ends a Python worker whose task leaves some, and the next one must import everything again.
    """
    import pyarrow as pa

    deque(batches, 0)
    missing = []
    for module, distribution in NEEDED.items():
        try:
            importlib.import_module(module)
        except _FAILS as error:
            missing.append(f"{distribution} ({type(error).__name__}: {error})")
    try:
        importlib.import_module("retention_cli.observe.cluster")
    except _FAILS as error:
        missing.append(f"kretain's engine ({type(error).__name__}: {error})")
    yield pa.RecordBatch.from_pydict(
        {"host": [socket.gethostname()], "python": [platform.python_version()], "missing": ["; ".join(missing)]}
    )


def check_executors(session: Any, tasks: int) -> None:
    """Check that executors have what they need.

    Raises:
        SparkError: an executor lacks a part; the text names it, and how to install it.
    """
    frame = session.range(0, tasks, 1, tasks).mapInArrow(probe, "host string, python string, missing string")
    try:
        rows = frame.collect()
    except Exception as error:  # noqa: BLE001  (not even the probe runs)
        text = last_lines(error)
        if _ENDED in text and (ended := as_spark_error(error)) is not None:
            raise ended from None
        raise SparkError(
            f"Spark's executors can't run Python as kretain needs it: {text} (is it the Python that you "
            f"mean? PYSPARK_PYTHON names it; docs/spark.md says how to ship an environment)"
        ) from None
    for row in rows:
        if row["missing"]:
            raise SparkError(
                f"executor {row['host']} (Python {row['python']}) lacks {row['missing']}: install them there, or ship "
                f"an environment (docs/spark.md)"
            )
