"""TLS contexts that are created once for many connections, and again when the trusted certificates have changed.

Loading the certificates of the operating system takes about 25 ms. truststore loads them for each connection. On Linux,
where they are files, a plain context that loads the same files verifies the same.
"""

import errno
import os
import re
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from xapi_cli.http import tls

Sources = tuple[tuple[str, str], ...]  # names of settings, and the paths in them
Stamp = tuple[tuple[str, int, int, int], ...]  # path, inode, size and modification time of each file

_MAX_CONTEXTS = 16
_OTHER_SYSTEM_FILES = (  # in the order of truststore, which uses the first one if OpenSSL's own location has none
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)


class PreparedContexts:
    """A thread-safe cache of TLS contexts by the files of the trusted certificates."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contexts: dict[tuple[Sources, Stamp], ssl.SSLContext] = {}

    def get(self, sources: Sources) -> tuple[Stamp, ssl.SSLContext]:
        """Return the context that trusts *sources*, none for those of the operating system, and the files' stamp.

        Raises UsageError if the certificates cannot be loaded, OSError if a file cannot be examined.
        """
        stamp = _stamp(sources)
        with self._lock:
            key = sources, stamp
            context = self._contexts.pop(key, None) or _create(sources)
            self._contexts[key] = context  # the last ones are the most recently used ones
            if len(self._contexts) > _MAX_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
        return stamp, context


def _create(sources: Sources) -> ssl.SSLContext:
    context = tls.context_from_files([(name, Path(path)) for name, path in sources]) if sources else _system_context()
    tls.harden(context)
    return context


def _system_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if _default_paths():
        context.set_default_verify_paths()
    elif file := next(filter(os.path.isfile, _OTHER_SYSTEM_FILES), None):
        context.load_verify_locations(cafile=file)
    return context


def _default_paths() -> list[str]:
    """Return the locations of OpenSSL if they contain certificates, by the rules of truststore."""
    paths = ssl.get_default_verify_paths()
    directory = paths.capath
    is_used = directory and any(re.fullmatch(tls.HASHED_NAME, name) for name in os.listdir(directory))
    return [path for path in (paths.cafile, directory) if path] if paths.cafile or is_used else []


def _stamp(sources: Sources) -> Stamp:
    if sources:
        return tuple(entry for _, path in sources for entry in _stamps_of(path))
    paths = _default_paths() or [path for path in _OTHER_SYSTEM_FILES if os.path.isfile(path)]
    return tuple(_stamp_of(path) for path in paths)  # replacing a file in the directory of the system changes its time


def _stamps_of(path: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the stamp of *path*, and of the files in it if it is a directory."""
    yield _stamp_of(path)
    if os.path.isdir(path):
        files = (os.path.join(path, name) for name in sorted(os.listdir(path)))
        yield from (_stamp_of(file) for file in files if os.path.isfile(file))


def _stamp_of(path: str) -> tuple[str, int, int, int]:
    status = os.stat(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "neither a file nor a directory", path)  # a pipe can be read only once
    return path, status.st_ino, status.st_size, status.st_mtime_ns
