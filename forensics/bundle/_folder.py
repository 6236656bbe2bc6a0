"""List a folder that somebody hands us."""

from __future__ import annotations

import os
from pathlib import Path

from forensics.bundle._names import ATTEMPTS, CHECKSUMS, JOURNAL, MANIFEST, OWN_FILES, printable

MAX_FILES = 20_000
MAX_DEPTH = 16
ARCHIVES = (".tar.gz", ".tgz", ".tar")


class Walk:
    """The regular files below a folder, bounded; hidden ones skipped, links not followed, bundles of their own set apart."""

    def __init__(self, root: Path, *, whole: bool = False) -> None:
        self.files: list[tuple[str, os.stat_result]] = []
        self.bundles: list[Path] = []
        self.losses: list[str] = []
        self._root = root
        self._whole = whole
        self._real = os.path.realpath(root)
        self._walk(root, "", 0)

    def _walk(self, folder: Path, prefix: str, depth: int) -> None:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self.losses.append(_why(printable(prefix) or printable(str(folder)), "cannot be listed", error))
            return
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if len(self.files) >= MAX_FILES:
                self._once(f"more than {MAX_FILES} files: the rest was not read")
                return
            if entry.is_symlink():
                self._link(entry.path, name)
            elif entry.is_dir(follow_symlinks=False):
                if not self._whole and is_bundle(Path(entry.path)):
                    self.bundles.append(Path(entry.path))
                elif depth < MAX_DEPTH:
                    self._walk(Path(entry.path), name + "/", depth + 1)
                else:
                    self._once(f"folders deeper than {MAX_DEPTH} were not read")
            elif not entry.is_file(follow_symlinks=False):
                self.losses.append(f"{printable(name)} is not a regular file: refused")
            elif not self._whole and name.endswith(ARCHIVES):
                self.bundles.append(Path(entry.path))
            elif (status := self._readable(entry, name)) is not None:
                self.files.append((name, status))

    def _readable(self, entry: os.DirEntry[str], name: str) -> os.stat_result | None:
        """Its status, or None and a sentence when this user may not read it (or it has just gone)."""
        try:
            os.close(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
            return entry.stat(follow_symlinks=False)
        except OSError as error:
            self.losses.append(_why(printable(name), "cannot be read", error))
            return None

    def _link(self, path: str, name: str) -> None:
        target = os.path.realpath(path)
        inside = target == self._real or target.startswith(self._real + os.sep)
        if not inside or self._whole:  # a link to a file in the folder only repeats it
            self.losses.append(f"{printable(name)} is a symbolic link{'' if inside else ' out of the folder'}: refused")

    def _once(self, sentence: str) -> None:
        if sentence not in self.losses:
            self.losses.append(sentence)


def _why(name: str, what: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{name}: DENIED, {what} (permission denied); cure: read it as its owner or as root"
    return f"{name}: {what} ({error.strerror})"


def is_bundle(folder: Path) -> bool:
    # os.path and not Path: to the latter a folder that is closed to this user is an exception
    names = {name for name in OWN_FILES if os.path.isfile(folder / name)}  # noqa: PTH113
    return ATTEMPTS in names or JOURNAL in names or {MANIFEST, CHECKSUMS} <= names
