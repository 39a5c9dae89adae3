"""What Spark says in many lines is told in one (what really comes of it: tests/spark/test_failures.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention_cli.engines.spark.session import LOG, as_spark_error, start_failure

LOST = "An error occurred while calling o59.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "


class TheirError(Exception):
    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "said", "todo"),
    [
        (
            f"{LOST}Lost task 0.0 in stage 3.0 (TID 3) (node executor 0): ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache",
            "Lost task 0.0 in stage 3.0 (TID 3) (node executor 0): ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137",
            "give it more memory (--spark-conf spark.driver.memory=4g",
        ),
        (
            f"{LOST}Lost task 1.0 in stage 0.0 (TID 1) (node executor 2): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat org.apache",
            "(node executor 2): Python worker exited unexpectedly (crashed)",
            "PYSPARK_PYTHON",
        ),
        (
            "An error occurred while calling o104.collectToPython.\n: java.lang.OutOfMemoryError: Java heap space\n\tat java.base",
            "java.lang.OutOfMemoryError: Java heap space",
            "give it more memory",
        ),
        (
            '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "failed to connect to all addresses"\n\tdebug_error_string = "UNAVAILABLE"\n>',
            "failed to connect to all addresses",
            "look whether Spark is up, then run again",
        ),
        (
            'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "x.py", line 17, in boom\n    raise ValueError("of a task")\nValueError: of a task',
            "ValueError: of a task",
            "run again; -vv shows where",
        ),
        (
            "Job 3 cancelled because SparkContext was shut down",
            "SparkContext was shut down",
            "look whether Spark is up",
        ),
    ],
)
def test_spark_error_is_reported_in_one_line_with_a_remedy(text: str, said: str, todo: str) -> None:
    told = str(as_spark_error(TheirError(text)))
    assert told.startswith("Spark could not carry it out: ")
    assert f"{said}; {todo}" in told or (said in told and todo in told)
    assert "\n" not in told
    assert "collectToPython" not in told


@pytest.mark.parametrize("error", [ValueError("ours"), ConnectionRefusedError("a broker's"), KeyboardInterrupt()])
def test_error_that_is_not_sparks_is_unchanged(error: BaseException) -> None:
    assert as_spark_error(error) is None


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "WARNING: Using incubator modules\nException in thread \"main\" org.apache.spark.SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.\n\tat org.apache\n",
            "When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.",
        ),
        (
            "bin/spark-class: line 71: /nowhere/bin/java: No such file or directory\nbin/spark-class: line 97: CMD: bad array subscript\n",
            "bin/spark-class: line 71: /nowhere/bin/java: No such file or directory",
        ),
        ("WARNING: Using incubator modules\n", None),
    ],
)
def test_failed_spark_start_is_explained_from_its_log(log: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / LOG).write_text(log)
    assert start_failure(tmp_path / LOG) == said
    assert start_failure(tmp_path / "none") is None
