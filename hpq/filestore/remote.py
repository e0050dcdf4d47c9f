"""A file store behind a URL (s3://, gs://, …), through fsspec, which is imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, cast

from hpq.errors import SettingsError
from hpq.filestore.base import ID_FILE, checked_name, is_safe_name, new_id, store_id_in
from hpq.redis import credentials

# The types that callers distinguish, the narrower first.
_KINDS = (FileNotFoundError, FileExistsError, PermissionError, OSError)
_MOST_RACES = 100  # with a process that removes a folder while it is empty


class RemoteFiles:
    """A store that fsspec opens; errors of its libraries become OSError."""

    def __init__(self, url: str, creates: bool) -> None:
        self._secrets = credentials.carried(url)
        where = f"HPQ_STORE: {credentials.redact(url)}"
        try:
            connect = import_module("fsspec.core").url_to_fs
            self._fs, root = self.attempt(connect, url, passing=(ImportError, ValueError))
        except ModuleNotFoundError:
            text = f"{where} needs fsspec; pip install fsspec, or name a directory"
            raise SettingsError(text, code="extra-missing") from None
        except ImportError as error:
            raise SettingsError(f"{where}: {self._hide(error)}", code="store-unusable") from None
        except ValueError as error:
            why = self._hide(error)
            text = f"{where}: {why}; name a directory or a URL"
            raise SettingsError(text, code="store-unusable") from None
        self._root: str = root.rstrip("/")
        path = f"{self._root}/{ID_FILE}"
        if creates and not self.attempt(self._fs.exists, path):
            self.attempt(self._fs.makedirs, self._root, exist_ok=True)
            with suppress(FileExistsError):
                self.attempt(self._fs.pipe_file, path, new_id().encode(), mode="create")
        # Read back: of two processes that write an id at once, both use the id that stayed.
        self.id = store_id_in(self.attempt(self._fs.cat_file, path), self._hide(path))

    def attempt(
        self,
        call: Callable[..., Any],
        *args: Any,
        passing: tuple[type[Exception], ...] = (),
        **more: Any,
    ) -> Any:
        """Call fsspec; raise OSError for any error that is not of the types `passing`.

        If the URL carries a secret, only the text of the error is kept, without the secret, since a
        traceback shows the errors that caused an error.
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
            text = self._hide(f"{type(error).__name__}: {error}")
            raise OSError(text) from (None if self._secrets else error)

    def _hide(self, text: object) -> str:
        return credentials.hide(str(text), self._secrets)

    def _full(self, name: str) -> str:
        return f"{self._root}/{checked_name(name)}"

    def write(self, name: str) -> IO[bytes]:
        for _ in range(_MOST_RACES):
            with suppress(FileNotFoundError):
                return self._write(name)
        return self._write(name)

    def _write(self, name: str) -> IO[bytes]:
        path = self._full(name)
        self.attempt(self._fs.makedirs, path.rpartition("/")[0], exist_ok=True)
        return cast(IO[bytes], _Wrapped(self, self.attempt(self._fs.open, path, "wb")))

    def read(self, name: str) -> IO[bytes]:
        return cast(IO[bytes], _Wrapped(self, self.attempt(self._fs.open, self._full(name), "rb")))

    def folders(self, folder: str) -> list[str]:
        root, found = self._full(folder), []
        self.attempt(self._fs.invalidate_cache)
        with suppress(FileNotFoundError):
            found = self.attempt(self._fs.ls, root, detail=True)
        paths = (entry["name"] for entry in found if entry["type"] == "directory")
        names = (path.rstrip("/").rpartition("/")[2] for path in paths)
        return sorted(name for name in names if is_safe_name(f"{folder}/{name}"))

    def names(self, folder: str) -> list[str]:
        root = self._full(folder)
        self.attempt(self._fs.invalidate_cache)
        found = self.attempt(self._fs.find, root) if self.attempt(self._fs.exists, root) else []
        start = len(self._fs._strip_protocol(root).rstrip("/")) + 1
        names = (self._fs._strip_protocol(path)[start:] for path in found)
        return sorted(name for name in names if is_safe_name(f"{folder}/{name}"))

    def remove(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self.attempt(self._fs.rm, self._full(folder), recursive=True)
        self.attempt(self._fs.invalidate_cache)
        with suppress(OSError):  # object stores have no empty folders
            # Up to the first that is not empty: rmdir of hdfs:// would remove its files, too.
            while (folder := folder.rpartition("/")[0]) and not self._has_entries(folder):
                self.attempt(self._fs.rmdir, self._full(folder))

    def _has_entries(self, folder: str) -> bool:
        return bool(self.attempt(self._fs.ls, self._full(folder), detail=False))


class _Wrapped:
    """An fsspec file whose errors are OSError."""

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
