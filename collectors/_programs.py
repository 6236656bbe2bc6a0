"""Where a helper program lies that was installed beside us."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator


def find(program: str, told: str = "") -> str | None:
    """`program` as told, next to this interpreter, on PATH, or where its distribution (of the same name) was installed."""

    def candidates() -> Iterator[str]:
        if told:
            yield told
            return
        yield os.path.join(os.path.dirname(sys.executable), program)
        # hardly ever reached, and these imports cost milliseconds
        import sysconfig

        yield os.path.join(sysconfig.get_path("scripts"), program)
        yield from (os.path.join(folder, program) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
        from importlib import metadata

        try:
            for file in metadata.files(program) or ():
                if file.name == program:
                    yield os.path.realpath(str(file.locate()))
        except metadata.PackageNotFoundError:
            pass  # the last place to look

    return next((path for path in candidates() if os.path.isfile(path) and os.access(path, os.X_OK)), None)
