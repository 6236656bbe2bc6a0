"""Installed distributions of a foreign Python environment, read from their metadata folders; nothing is imported.

*.dist-info: the "Recording installed projects" specification (PEP 376, 627); direct_url.json: PEP 610; egg-info: setuptools.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from collectors._contract import read_bounded, resolve_in_root
from collectors._imports import names_in

METADATA_BYTES = 64 * 1024
"""Name and version stand in the head of METADATA, before the long description."""
SOURCE_BYTES = 64 * 1024
RECORD_BYTES = 16 * 1024 * 1024
_FOLDER = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info\Z")
_HEADER = re.compile(r"^(Name|Version): *(.+?)\s*$", re.M)
_COMMIT = re.compile(r"^(?:git_version|__commit_id__|commit_id|__commit__)[\w\s=:|]*= *['\"]g?([0-9a-f]{7,40})['\"]", re.M)
_VERSION = re.compile(r"^__version__[\w\s=]*= *['\"]([^'\"]{1,80})['\"]", re.M)


class Distribution(NamedTuple):
    name: str
    version: str
    folder: str
    """The folder of packages that it is installed in, as its process names it."""
    meta: str
    """Name of its metadata folder."""
    where: str
    """That folder as we open it."""
    changed_ns: int
    """The later of mtime and ctime of its metadata."""
    installer: str
    editable: str
    """Source folder of an editable installation."""
    origin: str
    """URL that it was installed from, where not from an index."""
    commit: str

    def told(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if key != "where"}


def normal(name: str) -> str:
    """Names as the index compares them (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(root: str, folder: str) -> list[Distribution]:
    """Distributions of one folder. What cannot be read of one is empty, and its name is that of its metadata folder."""
    found = []
    for entry in names_in(root, folder):
        if named := _FOLDER.match(entry):
            where = resolve_in_root(root, f"{folder}/{entry}")
            found.append(_distribution(folder, entry, where, named["name"], named["version"]))
    return found


def _distribution(folder: str, entry: str, where: str, name: str, version: str) -> Distribution:
    path = where if os.path.isfile(where) else f"{where}/METADATA" if entry.endswith(".dist-info") else f"{where}/PKG-INFO"
    head = dict(_HEADER.findall(_text(path, METADATA_BYTES).partition("\n\n")[0]))
    try:
        s = os.stat(path)
        changed = max(s.st_mtime_ns, s.st_ctime_ns)
    except OSError:
        changed = 0
    try:
        direct = json.loads(_text(f"{where}/direct_url.json", METADATA_BYTES) or "{}")
        url, editable = str(direct.get("url", "")), bool(direct.get("dir_info", {}).get("editable"))
        commit = str(direct.get("vcs_info", {}).get("commit_id", ""))
    except (ValueError, AttributeError, RecursionError):  # not JSON, or of another shape
        url, editable, commit = "", False, ""
    return Distribution(
        name=head.get("Name", name),
        version=head.get("Version", version),
        folder=folder,
        meta=entry,
        where=where,
        changed_ns=changed,
        installer=_text(f"{where}/INSTALLER", 100).strip(),
        editable=url.removeprefix("file://") if editable else "",
        origin=url,
        commit=commit,
    )


def _text(path: str, limit: int) -> str:
    try:
        return read_bounded(path, limit)[0].decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return ""


def record_of(distribution: Distribution) -> bytes:
    """Its RECORD, b"" where it keeps none or a too large one. Raises OSError where it may not be read."""
    try:
        raw, cut = read_bounded(f"{distribution.where}/RECORD", RECORD_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    return b"" if cut else raw


def owners(package: str, folder: str, distributions: list[Distribution]) -> Iterator[Distribution]:
    """Who installed the import package that lies in `folder`: whose record names its files, or whose source folder that is.

    Likely ones by name are asked first, the others only if none does.
    """
    likely = [d for d in distributions if normal(d.name).startswith(normal(package))]
    for asked in (likely, [d for d in distributions if d not in likely]):
        found = [d for d in asked if d.folder == folder and f"\n{package}/__init__.py," in "\n" + _record_text(d)]
        found += [d for d in asked if d.editable and f"{folder}/".startswith(d.editable.rstrip("/") + "/")]
        if found:
            yield from found
            return
    yield from (d for d in likely if normal(d.name) == normal(package) and d.folder == folder)


LIBRARIES = {
    "libnccl": "nvidia-nccl",
    "libcudart": "nvidia-cuda-runtime",
    "libcublas": "nvidia-cublas",
    "libcudnn": "nvidia-cudnn",
    "libnvshmem_host": "nvidia-nvshmem",
}
"""Libraries that come in packages of their own and do not name their version in the file, or not before it is searched."""


def version_of_library(path: str, distributions: list[Distribution]) -> str:
    """The version of the package whose record names this library; "" where none does."""
    begins = LIBRARIES.get(path.rpartition("/")[2].partition(".")[0])
    for distribution in distributions if begins else ():
        inside = path.removeprefix(f"{distribution.folder}/")
        if inside != path and normal(distribution.name).startswith(begins or "") and f"\n{inside}," in "\n" + _record_text(distribution):
            return distribution.version
    return ""


def _record_text(distribution: Distribution) -> str:
    try:
        return record_of(distribution).decode("utf-8", "replace")
    except OSError:
        return ""


def named_by_itself(where: str) -> tuple[str, str]:
    """(version, commit) that a package states in its generated version module, "" for what it does not."""
    version = commit = ""
    for name in ("_version.py", "version.py"):
        text = _text(f"{where}/{name}", SOURCE_BYTES)
        found, said = _VERSION.search(text), _COMMIT.search(text)
        version, commit = version or (found[1] if found else ""), commit or (said[1] if said else "")
    return version, commit
