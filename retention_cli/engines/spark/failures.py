"""Describe errors of a running Spark in one line: what happened, and what to do."""

from __future__ import annotations

from typing import Final

from retention_cli.engines.spark.session import SparkError, last_words

_THEIRS: Final = ("pyspark", "py4j", "grpc")
_RUN_AGAIN: Final = "run again; -vv shows where it happened"
_REMEDIES: Final = (
    (
        ("OutOfMemoryError", "memory limits", "exit code 137", "exited with code 137"),
        "give it more memory (--spark-conf spark.driver.memory=4g, spark.executor.memory=4g), then run again",
    ),
    (
        ("Cannot run program", "Python worker exited", "Python worker failed"),
        "look at the executors' logs: is it the Python that you mean (PYSPARK_PYTHON), and is there memory for it?",
    ),
    (
        ("UNAVAILABLE", "Connection refused", "SESSION_NOT_FOUND", "was shut down", "Master removed", "is gone"),
        "look whether Spark is up, then run again",
    ),
    (("ExecutorLostFailure", "executor lost", "FetchFailed"), "look at the executors' logs, then run again"),
)


def as_spark_error(error: BaseException) -> SparkError | None:
    """Return a Spark error with a readable text; None if the error is not Spark's.

    PySpark, Py4J and gRPC have errors of their own; if Spark's process has ended, they raise the system's.
    """
    theirs = type(error).__module__.partition(".")[0] in _THEIRS
    if not theirs and not (isinstance(error, OSError | EOFError) and _raised_by_spark(error)):
        return None
    said = last_words(error)
    if not theirs or type(error).__name__ == "Py4JNetworkError":
        said = f"its process on this machine is gone ({said})"
    return SparkError(f"Spark could not carry it out: {said.rstrip('.')}; {_remedy(f'{said} {error}')}")


def _raised_by_spark(error: BaseException) -> bool:
    """Return whether the error passed through any of Spark's code."""
    at = error.__traceback__
    while at is not None:
        if str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in _THEIRS:
            return True
        at = at.tb_next
    return False


def _remedy(text: str) -> str:
    return next((remedy for signs, remedy in _REMEDIES if any(sign in text for sign in signs)), _RUN_AGAIN)
