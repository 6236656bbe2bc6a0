"""Which node a bare file is of: what its name says, or its folder where files are named alike in several, or the host in its lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from forensics.analysis.logs import Hint, peel
from forensics.analysis.rotated import base_of

# an underscore is one of \w: a group that repeats and begins with either mark could be divided in two to the n ways
_NODE = re.compile(r"^(.+?\d+)(?:[-_][A-Za-z]\w*(?:-[A-Za-z]\w*)*)?$")
HOST_LINES = 3
"""Fewer lines that name a host prove nothing."""


def node_of(name: str) -> str:
    """The node that a bare file's name tells: "node1" of "node1-worker.log", "prefill-2" of "prefill-2.log"."""
    first = name.rsplit("/", 1)[-1].split(".", 1)[0]
    m = _NODE.match(first)
    return m[1] if m else first


def by_folder(names: Iterable[str]) -> Callable[[str], str]:
    """`node_of` for a tree of files: where folders hold files of the same names, the folder is the node ("node0/engine.log")."""
    alike: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for name in names:
        *folders, base = name.split("/")
        alike[base_of(base)[0]].add(tuple(folders))
    # where the folders begin to differ: what stands there names the node
    levels: set[tuple[str, ...]] = set()
    for places in alike.values():
        deep = [p for p in places if p]
        if len(deep) > 1:
            common = 0
            while all(len(p) > common and p[common] == deep[0][common] for p in deep):
                common += 1
            levels.add(deep[0][:common])

    def node(name: str) -> str:
        *folders, _ = name.split("/")
        for depth in range(len(folders)):
            if tuple(folders[:depth]) in levels:
                return folders[depth]
        return node_of(name)

    return node


def hosts_in(head: str) -> Counter[str]:
    """The hosts that lines of syslog, the journal or NCCL name as their own, and how many lines do."""
    hint = Hint()
    found: Counter[str] = Counter()
    for line in head.split("\n")[:200]:
        out = peel(line[:2048], hint)
        if out.host and (out.format == "nccl" or any(w.startswith(("syslog", "systemd", "journald")) for w in out.wrappers)):
            found[out.host] += 1
    return found


def by_host(node: Callable[[str], str], hosts: Mapping[str, Counter[str]]) -> Callable[[str], str]:
    """`node`, but where a file's name is of no machine ("engine.log", without a number) the host that all its lines agree on."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for name, found in hosts.items():
        if "/" not in name and not _NODE.match(node(name)):
            said[node(name)].update(found)
    renamed = {old: next(iter(found)) for old, found in said.items() if len(found) == 1 and sum(found.values()) >= HOST_LINES}
    return lambda name: renamed.get(node(name), node(name))
