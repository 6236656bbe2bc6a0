"""What the driver says of a GPU: fallen off the bus, memory fault, ECC, NVLink, or another Xid. One finding a GPU: what names it best."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._gpu_kinds import KINDS, TIMED
from forensics.analysis.rules._machine import bus_id, first_at, named_process, outlived, part, ranks_of_gpu, weight
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, GpuFault, Grade, KernelEvent, LogHit

BY_PROGRAM = frozenset({"13", "31", "32", "43", "69", "109"})
DESKTOPS = ("xorg", "xwayland", "gnome-", "kwin", "plasma", "firefox", "chrome", "steam", "code", "mutter", "sway", "hyprland")
NOTICED_NS = 120 * 10**9
TOGETHER_NS = 60 * 10**9


def evaluate(view: View) -> Iterator[Finding]:
    events = view.kernel_feeding(*KINDS)
    telling = [e for e in events if e.role == "root"]
    gpus = dict.fromkeys((e.node, bus_id(e.fields.get("bus", ""))) for e in telling)
    if len(gpus) > 1:  # a line without an address goes with one that has
        gpus = {k: None for k in gpus if k[1] or not any(n == k[0] and b for n, b in gpus)}
    made: list[Finding] = []
    for node, bus in gpus:
        near = [e for e in events if e.node == node and (not (own := bus_id(e.fields.get("bus", ""))) or own == bus or not bus)]
        made += _of_gpu(view, node, bus, [e for e in near if e.role == "root"], [e for e in near if e.role != "root"])
    yield from _joined(made)
    yield from _said_by_cuda(view, {f for e in telling for f in [e.feeds]})


def _joined(made: list[Finding]) -> Iterator[Finding]:
    """One finding where several GPUs of a node had the same trouble and none of them certainly first: it is the node's."""
    for f in made:
        same = [g for g in made if (g.id, g.nodes, g.role) == (f.id, f.nodes, f.role) and not _apart(f, g)]
        if len(same) == 1 or f.role is not FindingRole.ROOT:
            yield f
        elif f is same[0]:
            refs = tuple(dict.fromkeys(r for g in same for r in g.because[:3]))[:12]
            title = f"{len(same)} GPUs of {', '.join(f.nodes)} {KINDS[f.id].says} together, first named: {f.title}"
            yield msgspec.structs.replace(f, title=title, because=refs, ranks=(), pids=())


def _apart(a: Finding, b: Finding) -> bool:
    return bool(a.since and b.since and (a.since.before(b.since) or b.since.before(a.since)))


def _of_gpu(view: View, node: str, bus: str, telling: list[KernelEvent], others: list[KernelEvent]) -> Iterator[Finding]:
    """One finding for each time at which this GPU had trouble, the newest first of its kind."""
    chosen: dict[str, tuple[list[KernelEvent], FindingRole]] = {}
    for group in _episodes(telling):
        id = min((e.feeds for e in group), key=list(KINDS).index)
        role = _part(view, id, group)
        if id not in chosen or chosen[id][1] is not FindingRole.ROOT:  # the first that may be the root, else the newest
            chosen[id] = (group, role)
    for id, (group, role) in chosen.items():
        kind, lead = KINDS[id], [e for e in group if e.feeds == id]
        since = first_at(group)
        ranks, refs, elsewhere = ranks_of_gpu(view, node, bus)
        victims = [p for e in group if (p := named_process(view, node, e.fields.get("pid"), e.fields.get("name")))]
        if not ranks and not elsewhere:
            ranks = list(dict.fromkeys(p.rank.rank for p in victims if p.rank and p.rank.rank is not None))
        if _of_a_stranger(group, bool(victims)):
            role = FindingRole.CONTEXT
        if elsewhere and not ranks:
            role = FindingRole.CONTEXT  # no rank of this engine runs there
        code = next((e.fields["code"] for e in lead if e.fields.get("code", "").isdigit()), "")
        word = f" (Xid {code})" if code and "Xid" not in kind.says and id != "gpu-xid" else ""
        what = f"Xid {code}: {lead[0].fields.get('detail', '')[:80]}".rstrip(": ") if code else lead[0].text[:100]
        title = f"GPU {bus or 'of unknown address'} of {node} {kind.says} {what if id == 'gpu-xid' else ''}".rstrip() + word
        action = next((e.fields["action"] for e in others if e.fields.get("action") and _near(e, group)), "")
        yield view.finding(
            id,
            Grade.ESTABLISHED,
            title=title + (f"; the driver asks for: {action}" if action else ""),
            because=[
                *(e.ref for e in (*lead, *(e for e in group if e not in lead))[:5]),
                *_beside(view, node, bus),
                *refs[:2],
                *(e.ref for e in others if _near(e, group)),
            ][:10],
            severity=weight(view, role, since),
            role=role,
            nodes=[node],
            ranks=ranks,
            processes=victims if ranks and len(victims) == 1 else (),
            since=since,
            does_not_show="; ".join(s for s in (kind.limits, "" if ranks else "which rank runs on this GPU") if s),
            would_settle=[] if ranks else ["which rank runs on which PCI address: nvidia-smi with pids, or the launcher's map"],
        )


def _of_a_stranger(group: list[KernelEvent], victims: bool) -> bool:
    """Whether every fault that a program makes by itself is of one that is no engine: a desktop, a game."""
    named = [e.fields.get("name", "") for e in group]
    made = all(e.fields.get("code") in BY_PROGRAM for e in group)
    return made and not victims and all(n and not n.startswith("<") and n.lower().startswith(DESKTOPS) for n in named)


def _part(view: View, id: str, group: list[KernelEvent]) -> FindingRole:
    if all("nonfatal" in e.text.lower() for e in group if e.feeds == id):
        return FindingRole.CONTEXT
    late = KINDS[id].lasting or any(e.fields.get("code") in TIMED for e in group)  # noticed when somebody next asks the GPU
    return part(view, first_at(group), lasting=KINDS[id].lasting, late_ns=NOTICED_NS if late else 0, machine=True)


def _episodes(events: list[KernelEvent]) -> list[list[KernelEvent]]:
    groups: list[list[KernelEvent]] = []
    for e in events:
        last = groups[-1][-1] if groups else None
        near = last is not None and (not e.at or not last.at or e.at.earliest_ns - last.at.latest_ns <= TOGETHER_NS)
        if near:
            groups[-1].append(e)
        else:
            groups.append([e])
    return groups


def _near(e: KernelEvent, group: list[KernelEvent]) -> bool:
    at = first_at(group)
    return not e.at or not at or abs(e.at.earliest_ns - at.earliest_ns) <= TOGETHER_NS


def _beside(view: View, node: str, bus: str) -> list[EvidenceRef]:
    """Other witnesses of the same GPU: a tool that could not ask it, the bus below it."""
    return [f.ref for f in view.case.of(GpuFault) if bus and bus_id(f.pci) == bus and f.node == node] + [
        e.ref for e in view.kernel_feeding("pcie-aer-fatal") if e.role == "root" and e.node == node
    ][:1]


def _said_by_cuda(view: View, told: set[str]) -> Iterator[Finding]:
    """The same seen by a program: no GPU is named, so only where the driver's own line was not read."""
    for id in ("gpu-off-bus", "gpu-hardware-failure", "gpu-nvlink-fault"):
        hits: list[LogHit] = [h for h in view.feeding(id) if h.role == "root"]
        hits = [h for h in hits if not (h.at and outlived(view, h.at))]
        if not hits or id in told or (id == "gpu-hardware-failure" and told & {"gpu-ecc-contained", "gpu-off-bus"}):
            continue
        role = part(view, hits[0].at)
        ranks = {r for h in hits if (r := h.rank if h.rank is not None else view.rank_of(h.node, h.pid)) is not None}
        yield view.finding(
            id,
            Grade.SUPPORTED,
            title=f"A program was told that its GPU {KINDS[id].says}: {hits[0].text[:120]}",
            because=[h.ref for h in hits[:4]],
            severity=weight(view, role, hits[0].at),
            role=role,
            nodes=list(dict.fromkeys(h.node for h in hits)),
            ranks=sorted(ranks) if len(ranks) == 1 and sum(h.count for h in hits) == 1 else [],
            since=hits[0].at,
            would_settle=["the kernel log of this node"],
        )


TEXTS = {
    "gpu-off-bus": Text(
        says="A GPU no longer answers on the PCIe bus.",
        establishes="The driver's own line (Xid 79, fallen off the bus).",
        next_steps=(
            "drain and power-cycle the node",
            "look at power and temperature of the minutes before: a GPU also falls off for want of either",
        ),
    ),
    "gpu-ecc-contained": Text(
        says="An uncorrectable memory error was contained to one program, which was ended. The GPU can go on.",
        establishes="The driver's line (Xid 94), with the GPU.",
        next_steps=("restart the engine; reset the GPU when drained",),
    ),
    "gpu-hardware-failure": Text(
        says="The driver reports a failure of the GPU itself (uncontained ECC, GSP gone, remap failure and the like).",
        establishes="The driver's line with an Xid that no program can cause.",
        lower="Supported: CUDA said it, and the kernel log was not read.",
        next_steps=("take the GPU out of service and reset it",),
    ),
    "gpu-nvlink-fault": Text(
        says="The driver reports an NVLink error. Ranks on both ends are affected.",
        establishes="The driver's line (Xid 74, 144 to 150) with GPU and link.",
        next_steps=("reset the GPUs and the fabric",),
    ),
    "gpu-mmu-fault": Text(
        says="A GPU memory fault (Xid 31): mostly a bug of the program, an access through a bad pointer.",
        establishes="The driver's line, with GPU and process.",
        next_steps=("run the failing shape under compute-sanitizer: mostly the access is the program's own",),
    ),
    "gpu-xid": Text(
        says="The driver reports an Xid that is none of the kinds with a name of their own. Its number says who may be at fault.",
        establishes="The driver's line, with its number.",
        next_steps=("look the Xid up: 13, 31, 43, 45, 69 and 94 may come from the program or follow a kill, the rest is driver or GPU",),
        references=("NVIDIA Xid catalogue",),
    ),
}

RULE = Rule(
    name="gpu_fault",
    texts=TEXTS,
    about="The driver, or CUDA, reported a fault of a GPU.",
    any_of=("kernel", "log"),
    optional=("gpu",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Xid 45 and 43 follow a kill or another fault; 63 and 92 only tell; 13, 31, 43, 69 may be the program's.",
    references=("open-gpu-kernel-modules src/nvidia/src/kernel/gpu/rc/kernel_rc.c", "NVIDIA Xid catalogue"),
)
