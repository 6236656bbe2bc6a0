"""Check a bundle against its own checksums, without trusting a word of it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from forensics.bundle._names import CHECKSUMS, printable
from forensics.bundle.errors import NotABundle
from forensics.bundle.read import open_source
from forensics.bundle.source import CUT_AT_CAPTURE

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.{1,4096})")
_CHUNK = 1024 * 1024


class VerifyResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. Names are free of control characters."""

    label: str
    sealed: bool
    checked: int
    """Files whose content was compared with a checksum."""
    mismatches: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Sealed, whole, unchanged, and nothing added."""
        return self.sealed and not (self.mismatches or self.missing or self.extra or self.losses)


def verify(path: str | Path) -> VerifyResult:
    """Compare every file of a bundle (packed or not) with manifest-sha256.txt.

    Raises NotABundle for anything else, BundleError when there is nothing to read. A bundle that was never sealed is checked as far
    as its journal goes and is not ok.
    """
    with open_source(path) as source:
        if not source.bundle:
            raise NotABundle(f"{printable(str(path))} is not a bundle", "name a bundle that `forensics capture` wrote")
        listed = _listed(source.record(CHECKSUMS))
        expected = listed or {record.path: record.sha256 for record in source.evidence.values() if record.sha256}
        mismatches: list[str] = []
        seen: set[str] = set()
        extra: list[str] = []
        for item in (*source.own.values(), *source.items()):
            if item.name not in expected:
                if item.name not in source.own and not (item.evidence and not source.sealed):
                    extra.append(item.name)
                continue
            seen.add(item.name)
            digest = hashlib.sha256()
            try:
                with item.open() as file:
                    while piece := file.read(_CHUNK):
                        digest.update(piece)
            except OSError as error:
                mismatches.append(f"{item.name} ({error.strerror or error})")
                continue
            if digest.hexdigest() != expected[item.name]:
                mismatches.append(item.name)
        return VerifyResult(
            label=source.label,
            sealed=source.sealed,
            checked=len(seen),
            mismatches=tuple(mismatches),
            missing=tuple(printable(name) for name in expected if name not in seen),
            extra=tuple(extra),
            losses=tuple(loss for loss in source.losses if not loss.endswith(CUT_AT_CAPTURE)),
        )


def _listed(raw: bytes | None) -> dict[str, str]:
    """Path to digest, of every line that sha256sum would accept."""
    lines = (raw or b"").decode("utf-8", "replace").split("\n")
    return {match[2]: match[1] for line in lines if (match := _LINE.fullmatch(line))}


verify_bundle = verify
"""The name in forensics.bundle, where `verify` is this module."""
