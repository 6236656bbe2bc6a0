"""Entry of a collector child: `python -I -m collectors NAME [--sysroot DIR]`, with a JSON request on stdin."""

from __future__ import annotations

import importlib
import json
import os
import sys

from collectors import NAMES
from collectors._contract import Emitter, Request


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in NAMES:
        print(f"usage: python -m collectors {{{'|'.join(NAMES)}}} [--sysroot DIR] < request.json", file=sys.stderr)
        return 2
    name = argv[0]
    raw = {} if sys.stdin is None or sys.stdin.isatty() else json.loads(sys.stdin.read() or "{}")
    if "--sysroot" in argv:
        raw["sysroot"] = argv[argv.index("--sysroot") + 1]
    request = Request(raw)
    emit = Emitter(name, max_bytes=request.max_bytes)
    module = importlib.import_module(f"collectors.{name}")
    try:
        module.collect(request, emit)
    except BrokenPipeError:  # the parent gave up on us: nobody is left to tell, not even by the flush at our exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        with emit.attempt(name) as attempt:
            attempt.end("FAILED", f"{type(error).__name__}: {error}", "please report this defect of the collector")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
