"""Positions that only native frames show: a Python line that is no known wait may stand in a driver or a transport below it.

Asked for last, after everything that Python frames tell. Names are the public ones of CUDA, HIP, NCCL and Gloo; a stripped
library shows none, and then nothing is said.
"""

from forensics.engines._profile import FramePattern

NATIVE = (
    FramePattern(
        "gpu-sync",
        r"(?m)^(?:cu(?:da)?(?:Stream|Event|Device|Ctx)(?:Wait)?Synchronize|hip(?:Stream|Event|Device)Synchronize)\w* \(",
        within=16,
        target="the GPU",
        native=True,
    ),
    FramePattern(
        "collective",
        r"(?m)^(?:gloo::\S*(?:wait|barrier|allreduce|allgather|broadcast|reduceScatter|alltoall)|p?ncclGroupEnd\w*)",
        within=16,
        target="the other ranks of its group",
        native=True,
    ),
)
