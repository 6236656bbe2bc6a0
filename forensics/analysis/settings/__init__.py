"""The configuration in force of one engine: command lines, environments, start-up lines and live objects, joined by name.

Where they disagree the live object counts before the log, the log before the command line, the command line before the
environment, and the disagreement is told with both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations

from forensics.analysis.settings.read import Read, readings
from forensics.analysis.settings.risks import DEFAULTS, risk
from forensics.analysis.view import View
from forensics.model import Setting, SettingReading

PLACES = ("live object", "log", "command line", "environment")
"""Ranked: the first that says something says what is in force."""
OWN = frozenset(
    {
        *("rank", "local_rank", "node_rank", "group_rank", "role_rank", "port", "host", "headless", "api_server_count", "engine_index"),
        *("data_parallel_rank", "data_parallel_start_rank", "data_parallel_size_local", "data_parallel_rank_local", "nccl_port"),
        *("master_addr", "server_port", "output_rank", "gpu_ids", "base_gpu_id", "local_world_size", "cuda_visible_devices"),
        *(
            "nvidia_visible_devices",
            "nccl_ib_hca",
            "nccl_socket_ifname",
            "gloo_socket_ifname",
            "hip_visible_devices",
            "rocr_visible_devices",
            "vllm_host_ip",
            "vllm_dp_rank",
            "vllm_dp_rank_local",
        ),
        *("omp_num_threads", "vllm_cpu_omp_threads_bind", "ld_library_path", "pythonpath", "sglang_local_ip_nic", "nccl_debug_file"),
    }
)
"""Settings in lower case that every process or node legitimately has of its own."""
DIVIDED = frozenset({"data_parallel_size", "dp_size", "nnodes", "world_size"})
"""What was asked of the whole engine, while a replica may run as if it were alone."""
_RANKS_OF = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "POD_", "NODE_", "KUBERNETES_")


def of_engine(view: View) -> tuple[Setting, ...]:
    """Every setting that is read of this engine, by name. Of a past life only its log speaks."""
    by_name: dict[str, list[Read]] = {}
    for reading in readings(view):
        by_name.setdefault(reading.name, []).append(reading)
    return tuple(_setting(name, found) for name, found in sorted(by_name.items(), key=lambda kv: (kv[0].isupper(), kv[0].lower())))


def _setting(name: str, found: list[Read]) -> Setting:
    place = next(p for p in PLACES if any(r.via == p for r in found))
    best = [r for r in found if r.via == place]
    # of one place what the engine made of it counts before what it was asked for
    best = [r for r in best if not r.asked] or best
    if name in DIVIDED and (asked := [r for r in found if r.asked]):
        place = next(p for p in PLACES if any(r.via == p for r in asked))
        best = [r for r in asked if r.via == place]
    values = list(dict.fromkeys(r.value for r in best))
    value = values[0] if len(values) == 1 else ""
    own = name.lower() in OWN or name.startswith(_RANKS_OF)
    if own:
        sides = None
    elif name in DIVIDED:
        sides = disagreement(r for r in found if r.asked)
    else:
        sides = disagreement(found)
    return Setting(
        name=name,
        value=value,
        via=place,
        default=DEFAULTS.get(name) or DEFAULTS.get(name.upper(), ""),
        stated=any(r.stated for r in found),
        risk=risk(name, values),
        disagreement=f"{_said(sides[0])}, {_said(sides[1])}" if sides else "",
        disagreeing=(sides[0].ref, sides[1].ref) if sides else (),
        readings=_grouped(found),
    )


def disagreement(found: Iterable[Read]) -> tuple[Read, Read] | None:
    """Two readings that cannot both be so, the better one first; None where all agree.

    Numbers and switches are compared wherever they stand. A word that was asked for ("auto", "32k") is resolved to another, so
    that words are compared only where both say what was asked for, or both what runs. What was not stated is not compared.
    """
    ordered = sorted(found, key=lambda r: (PLACES.index(r.via), r.asked))
    first = list({(r.value, r.via, r.asked): r for r in reversed(ordered)}.values())[::-1]
    return next(((a, b) for a, b in combinations(first, 2) if _differ(a, b)), None)


def _differ(a: Read, b: Read) -> bool:
    kinds = {_kind(a.value), _kind(b.value)}
    if a.value == b.value or len(kinds) > 1 or "other" in kinds:
        return False
    if kinds == {"number"}:
        return float(a.value) != float(b.value)
    return kinds == {"switch"} or a.asked == b.asked


def _kind(value: str) -> str:
    """switch | number | word | other: a list or an object is written in many ways."""
    if value in ("true", "false"):
        return "switch"
    if re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        return "number"
    return "word" if re.fullmatch(r"[\w./:@+-]+", value) and value not in ("null", "auto") else "other"


def _said(r: Read) -> str:
    who = f"rank {r.rank}" if r.rank is not None else f"pid {r.pid}" if r.pid is not None else ""
    where = " of ".join(part for part in (who, r.node) if part)
    return f"the {r.via}{f' of {where}' if where else ''} says {r.value}"


def _grouped(found: list[Read]) -> tuple[SettingReading, ...]:
    groups: dict[tuple[str, str, bool, str], list[Read]] = {}
    for r in sorted(found, key=lambda r: (PLACES.index(r.via), r.asked)):
        groups.setdefault((r.via, r.node, r.asked, r.value), []).append(r)
    return tuple(
        SettingReading(
            value=value,
            via=via,
            node=node,
            ranks=tuple(sorted({r.rank for r in mine if r.rank is not None})),
            pids=tuple(dict.fromkeys(r.pid for r in mine if r.pid is not None)),
            asked=asked,
            ref=mine[0].ref,
        )
        for (via, node, asked, value), mine in groups.items()
    )
