"""A store behind a URL (s3://, gs://, …), through fsspec, which is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, cast

from hpq.connection import credentials
from hpq.errors import SettingsError
from hpq.filestore.local import ID_FILE, checked, id_in, new_id

# What callers tell apart, the narrower first.
_KINDS = (FileNotFoundError, FileExistsError, PermissionError, OSError)


class RemoteFiles:
    """Whatever fsspec opens under a URL. Its errors, of whatever library, become OSError."""

    def __init__(self, url: str) -> None:
        self._secrets = credentials.carried(url)
        where = f"HPQ_STORE: {credentials.redact(url)}"
        try:
            connect = import_module("fsspec.core").url_to_fs
            self._fs, root = self.attempt(connect, url, passing=(ImportError, ValueError))
        except ModuleNotFoundError:
            raise SettingsError(
                f"{where} needs fsspec; pip install 'hpq[store]', or name a directory",
                code="extra-missing",
            ) from None
        except ImportError as error:
            raise SettingsError(f"{where}: {self._hide(error)}", code="store-unusable") from None
        except ValueError as error:
            why = self._hide(error)
            raise SettingsError(
                f"{where}: {why}; name a directory or a URL", code="store-unusable"
            ) from None
        self._root: str = root.rstrip("/")
        path = f"{self._root}/{ID_FILE}"
        if not self.attempt(self._fs.exists, path):
            self.attempt(self._fs.makedirs, self._root, exist_ok=True)
            with suppress(FileExistsError):
                self.attempt(self._fs.pipe_file, path, new_id().encode(), mode="create")
        # Read back: of two that made it in the same moment, both take the one that stayed.
        self.id = id_in(self.attempt(self._fs.cat_file, path), self._hide(path))

    def attempt(
        self,
        call: Callable[..., Any],
        *args: Any,
        passing: tuple[type[Exception], ...] = (),
        **more: Any,
    ) -> Any:
        """The answer of a call (OSError for whatever it raises but `passing`).

        Where the URL carries a secret nothing of the library's own error is passed on but its text
        without that: a traceback shows all that led to an error.
        """
        try:
            return call(*args, **more)
        except passing:
            raise
        except OSError as error:
            if not self._secrets:
                raise
            kind = next(kind for kind in _KINDS if isinstance(error, kind))
            raise kind(self._hide(error)) from None
        except Exception as error:  # botocore's, gcsfs's, … have no common base
            told = self._hide(f"{type(error).__name__}: {error}")
            raise OSError(told) from (None if self._secrets else error)

    def _hide(self, text: object) -> str:
        return credentials.hide(str(text), self._secrets)

    def _full(self, name: str) -> str:
        return f"{self._root}/{checked(name)}"

    def write(self, name: str) -> IO[bytes]:
        path = self._full(name)
        self.attempt(self._fs.makedirs, path.rpartition("/")[0], exist_ok=True)
        return cast(IO[bytes], _Wrapped(self, self.attempt(self._fs.open, path, "wb")))

    def read(self, name: str) -> IO[bytes]:
        return cast(IO[bytes], _Wrapped(self, self.attempt(self._fs.open, self._full(name), "rb")))

    def names(self, folder: str) -> list[str]:
        root = self._full(folder)
        self.attempt(self._fs.invalidate_cache)
        found = self.attempt(self._fs.find, root) if self.attempt(self._fs.exists, root) else []
        start = len(self._fs._strip_protocol(root).rstrip("/")) + 1
        return sorted(self._fs._strip_protocol(path)[start:] for path in found)

    def remove(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self.attempt(self._fs.rm, self._full(folder), recursive=True)


class _Wrapped:
    """A file of fsspec's whose errors are OSError."""

    def __init__(self, remote: RemoteFiles, file: Any) -> None:
        self._remote, self._file = remote, file

    def __enter__(self) -> _Wrapped:
        return self

    def __exit__(self, *_: object) -> None:
        self._remote.attempt(self._file.close)

    def read(self, size: int) -> bytes:
        return bytes(self._remote.attempt(self._file.read, size))

    def write(self, data: bytes) -> None:
        self._remote.attempt(self._file.write, data)
