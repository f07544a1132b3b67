"""The cache of machine code on disk, for kernels and their helpers.

An entry is one file. Its name is a digest of everything that the machine code depends on, so a changed query, Cepheid,
Numba, Python or processor never meets an old entry. It is written atomically and begins with a digest of its name and
its content; an entry that is damaged, empty or moved is compiled again. A file is read only if it belongs to the user
(or, beside the sources, to their owner) and nobody else may write to it, because loading machine code executes it.

Kernels are in `$CEPHEID_CACHE`, or in the user's cache directory. Helpers are beside the sources (`$NUMBA_CACHE_DIR`
moves them), or else with the kernels. A directory that cannot be used is replaced by a private temporary directory. A
cache that cannot be written costs time, never a result.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import logging
import os
import pickle
import platform
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

_MAGIC = b"cepheid machine code 1\n"
_DIGEST_SIZE = 16
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PACKAGE = Path(__file__).parent.parent


def digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=_DIGEST_SIZE).hexdigest()


@lru_cache(maxsize=1)
def environment() -> str:
    """The versions and the processor that machine code depends on."""
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    return digest(platform.python_version(), platform.machine(), _processor(), *versions)


def _processor() -> str:
    """The model and the instruction sets of the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(1 << 14).split("\n\n")[0]
    except OSError:
        return platform.processor()
    return "\n".join(line for line in first.splitlines() if line.startswith(("model name", "flags", "Features")))


# --- directories ------------------------------------------------------------------------------------------------------


def wanted_directory() -> Path:
    """The directory of kernels that the environment chooses."""
    chosen = os.environ.get("CEPHEID_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(chosen) if chosen else Path(home) / "cepheid"


def kernel_directory() -> Path:
    """The directory of kernels: it exists, and only the user can write to it."""
    directory = wanted_directory()
    problem = directory_problem(directory)
    return directory if problem is None else _replacement(directory, problem)


def helper_directories() -> tuple[Path, Path]:
    """The directories of helpers: beside the sources, where nobody else can write to it, and with the kernels."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(chosen) / "cepheid" if chosen else _PACKAGE / "__pycache__" / "machine_code"
    kernels = kernel_directory()
    try:
        beside.mkdir(mode=0o755, parents=True, exist_ok=True)
        is_ours = _is_trusted(beside.stat())
    except OSError:
        return beside, kernels  # without entries
    return (beside if is_ours else kernels), kernels


@lru_cache(maxsize=16)
def _replacement(directory: Path, problem: str) -> Path:
    """A private temporary directory, which the processes of a user share."""
    private = Path(tempfile.gettempdir()) / f"cepheid-{os.getuid()}"
    if private.is_symlink() or directory_problem(private) is not None:
        private = Path(tempfile.mkdtemp(prefix="cepheid-"))
    _log.warning("the kernel cache %s %s; kernels are cached in %s", directory, problem, private)
    return private


def directory_problem(directory: Path) -> str | None:
    """Why a directory cannot hold machine code, or None. It is created if it does not exist."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        return f"cannot be created ({error.strerror})"
    if not _is_trusted(status):
        return "belongs to another user, or others can write to it"
    return None if os.access(directory, os.R_OK | os.W_OK | os.X_OK) else "is not writable"


def _is_trusted(status: os.stat_result) -> bool:
    """Whether a file or directory belongs to the user, or to the owner of Cepheid, and nobody else can write to it."""
    return status.st_uid in (os.getuid(), _owner()) and not status.st_mode & _OTHERS_WRITE


@lru_cache(maxsize=1)
def _owner() -> int:
    """The owner of Cepheid's sources: a directory, or an archive that holds it (on executors)."""
    return next(path for path in (_PACKAGE, *_PACKAGE.parents) if path.exists()).stat().st_uid


# --- entries ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> bytes | None:
    """The content of an entry; None if there is none, or it is damaged, or others may have written it."""
    try:
        with open(path, "rb") as file:
            if not _is_trusted(os.fstat(file.fileno())):
                _log.warning("the cached machine code %s can be changed by others; it is compiled again", path)
                return None
            data = file.read()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST_SIZE
    if data[:start] == _MAGIC + _seal(path, data[start:]):
        return data[start:]
    _log.warning("the cached machine code %s is damaged; it is compiled again", path)
    return None


def write(path: Path, content: bytes) -> bool:
    """Write an entry atomically. Returns False if that is impossible, on a full disk for example."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)  # beside the sources, other users load it too
            file.write(_MAGIC + _seal(path, content) + content)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


def _seal(path: Path, content: bytes) -> bytes:
    """The digest of an entry: its name is part of it, so that the code of another entry is not accepted."""
    return hashlib.blake2b(content, digest_size=_DIGEST_SIZE, key=path.stem[-64:].encode()).digest()


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """One process compiles an entry; others that need it wait, and then load it."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            fcntl.flock(held.enter_context(open(path.with_suffix(".lock"), "w")), fcntl.LOCK_EX)
        yield


@dataclass(slots=True)
class CodeCache:
    """The cache of one function, with the methods that a dispatcher of Numba calls. `name` and `content` identify the
    code; a function with one signature has it in its content."""

    directories: tuple[Path, ...]
    name: str
    content: str
    one_signature: bool = False

    def paths(self, signature: Any) -> list[Path]:
        signature = "" if self.one_signature else signature
        entry = f"{self.name}-{digest(self.content, str(signature), environment())}.code"
        return [directory / entry for directory in self.directories]

    def is_ready(self) -> bool:
        """Whether the code of a function is in the cache: for its signature, or for any."""
        if self.one_signature:
            return any(path.exists() for path in self.paths(None))
        return any(next(directory.glob(f"{self.name}-*.code"), None) for directory in self.directories)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        from numba.core.compiler import CompileResult

        data = next((data for path in self.paths(signature) if (data := read(path)) is not None), None)
        if data is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(data))  # type: ignore[no-untyped-call]

    def save_overload(self, signature: Any, result: Any) -> None:
        from numba.core.serialize import dumps

        if not result.library.has_dynamic_globals:
            content = dumps(result._reduce())  # type: ignore[no-untyped-call]
            if not any(write(path, content) for path in self.paths(signature)):
                _log.warning("the machine code of %s cannot be cached in %s", self.name, self.directories[-1])
