"""How evidence is obtained on a sick node: one file per source, standard library plus at most one probe library.

A collector stores what the node says and never concludes. It runs in a child of its own
(`sys.executable -I -m collectors NAME`) and speaks JSON lines on stdout; see `collectors._contract`.
"""

NAMES = (
    "rings",
    "stacks",
    "objects",
    "queues",
    "process",
    "cpu",
    "health",
    "memory",
    "clock",
    "gpu",
    "thermal",
    "patches",
    "kernel",
    "cores",
    "rpclogs",
    "builds",
)
"""Every collector, most volatile first. The module of the same name holds `collect(request, emit)`."""
