"""forensics verify BUNDLE."""

from __future__ import annotations

from pathlib import Path

OK, INCOMPLETE, NOTHING = 0, 3, 4
_SHOWN = 50


def verify_command(bundle: Path) -> int:
    """Print what a check of the bundle found. Returns 0: sealed and unchanged; 3: cut, unsealed or changed; 4: not a bundle."""
    import sys

    from forensics.bundle import BundleError, verify_bundle

    try:
        result = verify_bundle(bundle)
    except BundleError as error:
        sys.stderr.write(f"{error.message}\n" + (f"  {error.cure}\n" if error.cure else ""))
        return NOTHING
    lines = [f"{result.label}: {'sealed' if result.sealed else 'not sealed or not whole'}, {result.checked} files checked"]
    for word, names in (
        ("CHANGED", result.mismatches),
        ("MISSING", result.missing),
        ("ADDED", result.extra),
        ("LOST", result.losses),
    ):
        lines += [f"  {word}  {name}" for name in names[:_SHOWN]]
        lines += [f"  {word}  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    lines.append("OK" if result.ok else "NOT OK")
    sys.stdout.write("\n".join(lines) + "\n")
    return OK if result.ok else INCOMPLETE
