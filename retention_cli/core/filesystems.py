"""Open file systems by URL, with pyarrow: this machine's disk and remote ones."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from retention_cli.core.extras import arrow

_DOCS: Final = "See docs/archive.md"
_HADOOP: Final = (
    ("libjvm", f"HDFS needs Java, but libjvm.so was not found: set JAVA_HOME to a Java. {_DOCS}"),
    (
        "Unable to load libhdfs",
        f"HDFS needs Hadoop's libhdfs.so: ARROW_LIBHDFS_DIR or HADOOP_HOME names where it is. {_DOCS}",
    ),
    (
        "HDFS connection failed",
        (
            "Hadoop's client does not start, or knows no such place: CLASSPATH must begin with the folder of "
            f"hdfs-site.xml and name every jar (`hadoop classpath --glob`). {_DOCS}"
        ),
    ),
)
"""What pyarrow says where a part of Hadoop's client is missing, with every path that it tried; and what to do."""


class FilesystemError(Exception):
    """A URL's file system can't be used. The text has the reason, without the URL's part after a question mark."""


def connect(url: str) -> tuple[Any, str]:
    """Return pyarrow's file system for a URL or a local path, and the path in it.

    Raises:
        FilesystemError: it can't be reached, or a part of its client is missing.
        MissingPartError: pyarrow is not installed.
    """
    fs = arrow("pyarrow.fs")
    if "://" not in url:
        return fs.LocalFileSystem(), os.path.abspath(url)  # noqa: PTH100  (resolve would follow links)
    try:
        if url.startswith(("abfs://", "abfss://")):
            return _azure(fs, url)
        if url.startswith("hdfs:///"):  # wherever Hadoop's own settings lead
            return fs.HadoopFileSystem("default"), url.removeprefix("hdfs://")
        found, base = fs.FileSystem.from_uri("gs://" + url[6:] if url.startswith("gcs://") else url)
    except (OSError, ValueError, NotImplementedError) as error:
        text = " ".join(str(error).split()).replace(url, url.partition("?")[0])
        raise FilesystemError(next((ours for theirs, ours in _HADOOP if theirs in text), text)) from None
    return found, base


def _azure(fs: Any, url: str) -> tuple[Any, str]:
    """Return Azure's file system for ``abfss://container@account.dfs.core.windows.net/path``, as Hadoop writes it.

    The account's key or a SAS token come from the variables of Azure's own command line; else pyarrow looks for an
    identity (of the environment, the workload, or the machine).
    """
    if not hasattr(fs, "AzureFileSystem"):
        raise FilesystemError(f"this pyarrow does not support Azure: install a newer one. {_DOCS}")
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    container, _, host = parts.netloc.rpartition("@")
    account, _, suffix = host.partition(".")
    key = os.environ.get("AZURE_STORAGE_KEY")
    found = fs.AzureFileSystem(
        account,
        account_key=key,
        sas_token=None if key else os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
        blob_storage_authority=given.get("blob_storage_authority", f".{suffix.replace('dfs.', 'blob.', 1)}"),
        dfs_storage_authority=given.get("dfs_storage_authority", f".{suffix}"),
        blob_storage_scheme=given.get("scheme", "https"),
        dfs_storage_scheme=given.get("scheme", "https"),
    )
    return found, f"{container}{parts.path}".rstrip("/")
