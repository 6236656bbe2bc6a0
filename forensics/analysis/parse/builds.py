"""What the builds collector read: of each process the builds that it has loaded, of each environment its files against their record."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.model import BuildReading, ChangedFile, CodeCheck, EvidenceRef, MappedLibrary
from forensics.model.builds import START_NS

_STEM = re.compile(r"(?P<stem>.+?)(?:-[0-9a-f]{8})?\.(?:so\b|(?:abi3|cpython-[\w-]+)\.so\Z)")
COMMON = {"libnccl": "nccl", "librccl": "rccl", "libcudart": "cudart", "libcuda": "driver", "libnvidia-ml": "nvml", "libcublas": "cublas"}
"""Libraries by the name that people call them."""
SHOWN = 12


class _Package(msgspec.Struct):
    package: str
    folder: str = ""
    version: str = ""
    commit: str = ""
    changed_ns: int = 0
    editable: str = ""
    inferred: bool = False


class _Library(msgspec.Struct):
    path: str
    deleted: bool = False
    preloaded: bool = False
    build_id: str = ""
    version: str = ""


class _Process(msgspec.Struct):
    pid: int
    python: str = ""
    process_started_ns: int | None = None
    image_started_ns: int | None = None
    driver: str = ""
    packages: list[_Package] = []
    libraries: list[_Library] = []


def parse(inp: Input, sink: Sink) -> None:
    told = msgspec.json.decode(bytes(inp.data), type=_Process)
    started = told.image_started_ns or told.process_started_ns

    def add(component: str, locator: str, version: str, build_id: str, path: str, via: str, **more: object) -> None:
        ref = inp.ref(locator, " ".join(filter(None, (component, version, build_id and f"build {build_id}", path))))
        about = {"version": plain(version), "build_id": plain(build_id), "path": plain(path, 400), "via": via, "image_started_ns": started}
        pid = inp.pid if inp.pid is not None else told.pid
        sink.add(BuildReading(node=inp.node, at=inp.at, ref=ref, pid=pid, component=plain(component), **about, **more))  # type: ignore[arg-type]

    for p in told.packages:
        stale = bool(started and p.changed_ns > started + START_NS)
        where = f"{p.folder}/{p.package}"
        add(
            p.package, f"package {p.package}", p.version, p.commit, where, "metadata", stale=stale, inferred=p.inferred, editable=p.editable
        )
    for library in told.libraries:
        add(
            _component(library.path, told.packages),
            library.path,
            library.version,
            library.build_id,
            library.path,
            "maps",
            stale=library.deleted,
        )
        if library.preloaded:
            ref = inp.ref(library.path, f"preloaded: {library.path}")
            sink.add(MappedLibrary(node=inp.node, at=inp.at, ref=ref, pid=inp.pid, path=plain(library.path, 400)))
    if told.python:
        add("python", "python", told.python, "", "", "maps")
    if told.driver:
        add("nvidia.ko", "driver", told.driver, "", "", "kernel")


def _component(path: str, packages: list[_Package]) -> str:
    """ "nccl" of a library, "vllm/_C" of an extension module: its file's name without what differs between builds."""
    inside = next((f"{p.package}/" for p in packages if path.startswith(f"{p.folder}/{p.package}/")), "")
    base = path.rpartition("/")[2]
    m = _STEM.match(base)
    stem = m["stem"] if m else base
    return COMMON.get(stem) or (f"{inside}{stem}" if not stem.startswith("lib") else stem)


class _File(msgspec.Struct):
    path: str
    mtime_ns: int | None = None
    ctime_ns: int | None = None


class _Check(msgspec.Struct):
    distribution: str
    version: str = ""
    folder: str = ""
    installer: str = ""
    named: int = 0
    hashed: int = 0
    sources: int = 0
    sources_hashed: int = 0
    modified: list[_File] = []
    missing: list[_File] = []
    added: list[_File] = []
    differing: int = 0
    walked: bool = True
    cut: str = ""


class _Environment(msgspec.Struct):
    pids: list[int] = []
    checks: list[_Check] = []


def environment(inp: Input, sink: Sink) -> None:
    told = msgspec.json.decode(bytes(inp.data), type=_Environment)
    for c in told.checks:
        sink.add(
            CodeCheck(
                node=inp.node,
                at=inp.at,
                ref=_ref(inp, c),
                distribution=plain(c.distribution),
                version=plain(c.version),
                folder=plain(c.folder, 400),
                installer=plain(c.installer),
                pids=tuple(told.pids),
                named=c.named,
                hashed=c.hashed,
                sources=c.sources,
                sources_hashed=c.sources_hashed,
                modified=tuple(_files(c.modified)),
                missing=tuple(_files(c.missing)),
                added=tuple(_files(c.added)),
                differing=c.differing,
                walked=c.walked,
                cut=plain(c.cut),
            )
        )


def _files(files: list[_File]) -> Iterator[ChangedFile]:
    for f in files:
        changed = max((t for t in (f.mtime_ns, f.ctime_ns) if t is not None), default=None)
        yield ChangedFile(path=plain(f.path, 400), changed_ns=changed)


def _ref(inp: Input, c: _Check) -> EvidenceRef:
    kinds = {"modified": c.modified, "missing": c.missing, "added": c.added}
    said = [f"{what} {', '.join(f.path for f in files[:SHOWN])}" for what, files in kinds.items() if files]
    counted = f"{c.hashed} of {c.named} files compared"
    return inp.ref(f"{c.distribution} {c.version}", "; ".join((*said, counted, *([c.cut] if c.cut else []))))


PARSER = Parser("builds", ("builds",), lambda name, head: False, parse)
ENVIRONMENT = Parser("environment", ("environment",), lambda name, head: False, environment)
