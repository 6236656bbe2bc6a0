"""Kinds of faults of a GPU: what is said of each, and how it behaves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of fault, in words."""

    says: str
    lasting: bool
    limits: str


KINDS: dict[str, Kind] = {
    "gpu-off-bus": Kind("fell off the PCIe bus", True, "why: power, heat, a riser or the GPU itself"),
    "gpu-ecc-contained": Kind("had an uncorrectable memory error that was contained to one program", False, ""),
    "gpu-hardware-failure": Kind("reported a failure of its hardware", True, ""),
    "gpu-nvlink-fault": Kind("reported an NVLink fault", True, "which end of the link is at fault"),
    "gpu-mmu-fault": Kind(
        "reported a memory fault (Xid 31)", False, "whether the program or the GPU is at fault: mostly it is the program"
    ),
    "gpu-xid": Kind("reported", False, "whether the program, the driver or the GPU is at fault"),
}
"""In order of how much they say: of several about one GPU at one time the first is made."""
TIMED = {"8", "109", "119", "120"}
"""Xids that themselves report a limit that ran out."""
