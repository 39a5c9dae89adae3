"""Check an archive's URL: a path, or one of :data:`SCHEMES`, and never a secret in it. Pure.

URLs appear in plans, reports, the audit log and error texts. So anything that could be a password is refused before it
is repeated, and an error names parts of a URL, never the whole.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

NONE: Final = "none"
"""The word that turns off an archive that an earlier entry set."""
SCHEMES: Final = ("file", "s3", "hdfs", "viewfs", "gs", "abfs", "abfss", "gcs")
_AZURE: Final = ("abfs", "abfss")
_CONTAINER: Final = re.compile(r"[a-z0-9-]+@[a-z0-9]+(\.[a-z0-9-]+)+")
_PARAMETERS: Final = frozenset(
    {
        *("region", "scheme", "endpoint_override", "allow_bucket_creation", "tls_verify_certificates"),
        *("replication", "buffer_size", "default_block_size", "user"),
        *("blob_storage_authority", "dfs_storage_authority"),
        *("project_id", "retry_limit_seconds", "default_bucket_location"),
    }
)
"""The query parameters of pyarrow's file systems that are not secret."""


class ArchiveUrlError(ValueError):
    """A URL that can't name an archive; the text says what to write, and quotes no part that could be secret."""


def check_url(text: str) -> str:
    """Return the URL without a trailing slash.

    Raises:
        ArchiveUrlError: it has an unknown scheme, is not an absolute path, or may hold a user or a password.
    """
    if not text.strip() or text != text.strip() or not text.isprintable():
        raise ArchiveUrlError("is not a URL: give a path such as /archive, or s3://bucket/folder")
    if "://" not in text:
        if not text.startswith("/"):
            raise ArchiveUrlError("is not absolute: give a path from the root, such as /archive, or a URL")
        return text.rstrip("/") or "/"
    try:
        parts = urlsplit(text)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise ArchiveUrlError("is not a URL that can be read") from None
    if parts.scheme not in SCHEMES:
        raise ArchiveUrlError(f"starts with {parts.scheme}://, which is none of {', '.join(SCHEMES[:-1])}")
    azure = parts.scheme in _AZURE
    if azure and not _CONTAINER.fullmatch(parts.netloc):
        raise ArchiveUrlError("is not Azure's form: write abfss://container@account.dfs.core.windows.net/folder")
    if text.count("@") > azure:  # a password may hold a slash, and then the host does not begin where it seems to
        raise ArchiveUrlError(
            "holds an @, as if it named a user or a password: take them out, and leave it to the environment's own "
            "credentials (such as AWS_PROFILE, an instance's role, GOOGLE_APPLICATION_CREDENTIALS, "
            "AZURE_STORAGE_KEY, a Kerberos ticket)"
        )
    if not _PARAMETERS.issuperset(name for name, _value in parameters):
        raise ArchiveUrlError(
            f"has a parameter that is none of {', '.join(sorted(_PARAMETERS))}; credentials come from the environment"
        )
    if parts.fragment:
        raise ArchiveUrlError("has a part behind #, which means nothing here")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ArchiveUrlError("names a host: a file's URL has three slashes, file:///archive")
        if not parts.path.startswith("/") or parts.query:
            raise ArchiveUrlError("is not a file's URL: write file:///archive")
    elif not parts.netloc:
        raise ArchiveUrlError(f"names no {'bucket' if parts.scheme in ('s3', 'gs', 'gcs') else 'name node'}")
    return text if parts.query else text.rstrip("/") if parts.path.strip("/") or parts.netloc else text
