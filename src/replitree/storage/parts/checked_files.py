"""Verified data files as a file system of Arrow's: its scans open files by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from replitree.storage.parts.manifest import FileEntry


class ArrowFile(Protocol):
    """A verified data file that Arrow opens: a `CheckedFile`, for example."""

    @property
    def entry(self) -> FileEntry:
        """What the manifest says of it."""

    def open(self) -> pa.NativeFile:
        """Open it."""


def file_system_of(files: Mapping[str, ArrowFile]) -> pafs.FileSystem:
    """Return a file system that has these files, by their paths, and verifies what is read of them."""
    return pafs.PyFileSystem(_CheckedFiles(files))


class _CheckedFiles(pafs.FileSystemHandler):  # type: ignore[misc]  # it has no types
    """The methods that Arrow calls; a scan only opens files for reading."""

    def __init__(self, files: Mapping[str, ArrowFile]) -> None:
        self._files = files

    def get_type_name(self) -> str:
        return "replitree"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._files[path].open()

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return [
            pafs.FileInfo(path, pafs.FileType.File, size=self._files[path].entry.bytes)
            if path in self._files
            else pafs.FileInfo(path, pafs.FileType.NotFound)
            for path in paths
        ]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._files[path].open()

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("data files are only read")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refused
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refused


__all__ = ["ArrowFile", "file_system_of"]
