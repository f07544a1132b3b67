"""File systems: local files, and remote storage that PyArrow can read."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

_REMOTE = ("hdfs:", "s3:", "gs:")


def is_readable(path: str) -> bool:
    return path.startswith(("file:", "/", *_REMOTE))


def storage(path: str) -> tuple[fs.FileSystem, str]:
    """The file system, and the name of the file in it. Spark's URIs escape characters, and Java writes `file:/tmp/x`
    for `file:///tmp/x`."""
    if path.startswith("file:"):
        return fs.LocalFileSystem(), unquote(urlsplit(path).path)
    return fs.FileSystem.from_uri(path) if path.startswith(_REMOTE) else (fs.LocalFileSystem(), path)


def open_file(path: str) -> pa.NativeFile:
    files, name = storage(path)
    return files.open_input_file(name)
