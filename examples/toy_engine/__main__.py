"""Start the engine (or, with --role, one of its parts: the engine starts those itself)."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

if not __package__:  # started by path: load the folder as the package that it is, so that relative imports work
    _here = Path(__file__).resolve().parent
    _spec = importlib.util.spec_from_file_location(_here.name, _here / "__init__.py", submodule_search_locations=[str(_here)])
    assert _spec and _spec.loader
    sys.modules[_here.name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_here.name])
    __package__ = _here.name


def main() -> int:
    parser = argparse.ArgumentParser(prog="toy_engine", description="A small real inference engine with faults on demand.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one, which the ready line names")
    parser.add_argument("--ranks", type=int, default=2, help="number of worker processes")
    parser.add_argument("--rpc-timeout", type=float, default=30.0, metavar="S", help="how long the core waits for a step")
    parser.add_argument("--step-time", type=float, default=0.01, metavar="S", help="what a step costs on every rank")
    parser.add_argument("--control", default="", help='a file that says which fault to play: "MODE RANK [SECONDS]"; empty is none')
    for internal in ("--role", "--fds", "--shm"):
        parser.add_argument(internal, default="", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--world-size", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "core":
        from .core import run
    elif args.role == "worker":
        from .worker import run
    else:
        from .front import run
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
