"""A process in a pid namespace of its own (a container), seen from outside.

Read from outside, py-spy reports such a process with the thread ids of the inner namespace, fails to find them in our /proc and
calls every thread active; `--native` fails. Run inside the target's namespaces it reads correctly. The image need not contain it:
py-spy is one static file, started through a descriptor that we opened outside.
"""

from __future__ import annotations

import os

from collectors._contract import stat_fields
from collectors._look import Look

PLAIN = "thread ids and activity are those of its own pid namespace"


def entry(pid: int, look: Look) -> tuple[list[str], str]:
    """(the command that enters the namespaces of `pid`, "") or ([], why that is not possible)."""
    nsenter = next((path for folder in os.get_exec_path() if os.access(path := f"{folder}/nsenter", os.X_OK)), None)
    if nsenter is None:
        return [], f"nsenter is not installed: {PLAIN}"
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return [], f"it shares our view of /proc: {PLAIN}"
        # a container may have no /proc, or somebody else's: there its inner pid would be another process, or none
        if int(stat_fields(f"/proc/{pid}/root/proc/{look.inner}/stat")[19]) != look.start_ticks:
            return [], f"/proc inside is not that of its pid namespace: {PLAIN}"
    except (OSError, ValueError, IndexError):
        return [], f"its namespaces cannot be entered: {PLAIN}"
    return [nsenter, "-t", str(pid), "-m", "-p", "-r", "-w", "--"], ""
