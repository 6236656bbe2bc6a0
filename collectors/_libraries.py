"""Libraries that a process has mapped: which build each is, as its own file says. A replaced (deleted) file is read through map_files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from collectors._contract import os_error_outcome, read_bounded, resolve_in_root
from collectors._cpython._elf import Elf, NotElf
from collectors._imports import Process

KNOWN = re.compile(
    r"lib(?:nccl|rccl|cuda|cudart|nvidia-ml|cublas|cudnn|nvshmem_host|amdhip64|hsa-runtime64|torch|torch_cpu|torch_cuda|torch_hip|c10|nixl)"
    r"(?:-[0-9a-f]+)?\.so(?:\.|\Z)|libnccl-(?:net|tuner|profiler)"
)
"""What decides how ranks talk to each other and to their GPUs. auditwheel puts a hash into names."""
MODULE = re.compile(r"\.(?:abi3|cpython-[\w-]+)\.so\Z")
REPLACED = " (deleted)"
OTHERS = 50
"""Further libraries that were replaced under the process: of so many."""
STRINGS_BYTES = 8 << 20
Read = dict[tuple[int, ...], dict[str, str]]
"""(device, inode, mtime, size) to what the file says: ranks share their libraries."""
_NAMED = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)*)\Z")
_NCCL = re.compile(rb"[NR]CCL version (\d+\.\d+(?:\.\d+)?[\w.-]*?)(?:\+(?:cuda|hip)[\d.]*)?\0")


def mapped(me: Process, root: str, packages: list[str], preloaded: list[str], cache: Read) -> Iterator[dict[str, Any]]:
    """One record for each library that matters: known ones, extension modules of `packages` (folders), preloaded ones, replaced ones."""
    before = {path.rpartition("/")[2] for path in preloaded}
    replaced = 0
    for name, addresses in me.maps.items():
        path, gone = name.removesuffix(REPLACED), name.endswith(REPLACED)
        base = path.rpartition("/")[2]
        if ".so" not in base or not path.startswith("/"):
            continue
        module = MODULE.search(base) and any(path.startswith(f"{folder}/") for folder in packages)
        if not (module or base in before or KNOWN.match(base)):
            replaced += gone
            if not gone or replaced > OTHERS:
                continue
        told = {"path": path, "deleted": gone, "preloaded": base in before}
        yield {**told, **_read(f"{me.proc}/map_files/{addresses}", "" if gone else resolve_in_root(root, path), base, cache)}


def _read(exact: str, path: str, base: str, cache: Read) -> dict[str, Any]:
    """Build id and version. `exact` is the very file that is mapped (which needs privileges), `path` the one of that name."""
    named = _NAMED.search(base)
    told: dict[str, Any] = {"build_id": "", "version": named[1] if named else "", "error": ""}
    for place in filter(None, (exact, path)):
        try:
            fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            told["error"] = os_error_outcome(error)[1]
            continue
        try:
            s = os.fstat(fd)
            key = (s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size)
            if key not in cache:
                elf = Elf(fd)
                said = _NCCL.search(elf.content(".rodata", STRINGS_BYTES)) if "nccl" in base or "rccl" in base else None
                cache[key] = {"build_id": elf.build_id, "said": said[1].decode("latin-1") if said else ""}
        except NotElf as error:
            return {**told, "error": str(error)}
        finally:
            os.close(fd)
        return {**told, "build_id": cache[key]["build_id"], "version": cache[key]["said"] or told["version"], "error": ""}
    return told


def preloads(family: list[Process], root: str) -> list[str]:
    """Libraries that are put in front of all others: LD_PRELOAD of the process or of whom it inherited it, and /etc/ld.so.preload."""
    value = next((p.environ["LD_PRELOAD"] for p in family if p.environ.get("LD_PRELOAD")), "")
    try:
        listed = read_bounded(resolve_in_root(root, "/etc/ld.so.preload"), 65536)[0].decode("utf-8", "replace")
    except OSError:
        listed = ""
    lines = [line.partition("#")[0] for line in listed.splitlines()]
    return list(dict.fromkeys(word for word in re.split(r"[:\s]+", " ".join([value, *lines])) if word))
