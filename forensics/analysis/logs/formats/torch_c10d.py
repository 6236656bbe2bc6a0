"""PyTorch's C++ logs: glog's form in a bracket, behind the rank where it is known."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled

# the rank in a group's name is the rank in that group: only the default group's is the global one
_DEFAULT_RANK = re.compile(r"\[PG [^\]\n]{0,60}\(default_pg\) Rank (\d{1,6})\]")


def _take(out: Peeled, m: re.Match[str]) -> None:
    if not m["rank"] and (named := _DEFAULT_RANK.search(m.string, m.end(), m.end() + 120)):
        out.rank = int(named[1])
    out.engine = "gloo" if "gloo/" in m["at"] else "torch"


FORMAT = Format(
    name="torch-c10d",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        r"(?:\[rank(?P<rank>\d{1,6})\]:)?\[(?P<level>[IWEF])(?:(?P<time>\d{3,4} \d\d:\d\d:\d\d\.\d{3,9}))? "
        r"(?P<at>[\w./\-]{1,200}\.\w{1,4}:\d{1,6})\] ?"
    ),
    stamp="glog",
    take=_take,
    exact=True,
    order=10,
    samples=(
        "[rank1]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: x",
        "[rank0]:[W605 10:45:20.656957424 ProcessGroupNCCL.cpp:5188] Guessing device ID based on global rank.",
        "[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [PG ID 0 PG GUID 0(default_pg) Rank 1] x",
        "[E ProcessGroupNCCL.cpp:464] [Rank 3] Watchdog caught collective operation timeout: x",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect",
    ),
    negatives=("[Exception ProcessGroupNCCL.cpp:464] x", "[rank1]: Traceback (most recent call last):", "[E] x", "[E 1003] x"),
)
