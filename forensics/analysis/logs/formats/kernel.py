"""The kernel's own lines: dmesg in its forms, and records of /dev/kmsg."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import CTIME, Format, Peeled, stamped


def _take(out: Peeled, m: re.Match[str]) -> None:
    if m["date"]:
        stamped(FORMAT, out, m["date"], "ctime")
    elif m["micros"]:
        micros = m["micros"].rjust(7, "0")
        stamped(FORMAT, out, f"{micros[:-6]}.{micros[-6:]}")
    elif m["iso"]:
        stamped(FORMAT, out, m["iso"], "iso")


FORMAT = Format(
    name="kernel",
    wrapper=False,
    starts="[<kud0123456789",
    pattern=re.compile(
        rf"(?:<\d{{1,3}}>|(?:kern|user|daemon) {{0,6}}:(?:emerg|alert|crit|err|warn|notice|info|debug) {{0,6}}: )?"
        rf"\[(?: {{0,8}}(?P<time>\d{{1,9}}\.\d{{6}})|(?P<date>{CTIME}))\](?:\[ {{0,6}}[TC]\d{{1,9}}\])? "
        r"|\d{1,4},\d{1,12},(?P<micros>\d{1,15}),[^;\n]{0,80};"
        r"|(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d) "
    ),
    stamp="boot",
    engine="kernel",
    take=_take,
    order=20,
    samples=(
        "[ 1234.567890] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.",
        "<6>[    0.000000] Linux version 6.8.0",
        "[Mon Sep 13 19:44:02 2026] Out of memory: Killed process 1 (x)",
        "6,1234,5678901,-;NVRM: x",
        "kern  :err   : [ 1234.567890] x",
        "2026-09-13T19:44:02,123456+00:00 mlx5_core 0000:ab:00.0: Port: 1 Link DOWN",
        "[  123.456789][ T1234] x",
    ),
    negatives=("[ 1234.5] x", "[1234] x", "[Mon Sep 13 19:44:02] x", "6,1234;x"),
)
