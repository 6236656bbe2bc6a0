"""Bundles: written on a sick node, read anywhere, trusted nowhere. Names load their module on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.bundle.errors import BundleError, NotABundle
    from forensics.bundle.manifest import SCHEMA, Manifest
    from forensics.bundle.read import Item, Source, expand_paths, open_source
    from forensics.bundle.redact import NullRedactor, Redactor
    from forensics.bundle.verify import VerifyResult, verify
    from forensics.bundle.write import BundleWriter, EvidenceStream

_HOME = {
    "BundleError": "errors",
    "BundleWriter": "write",
    "EvidenceStream": "write",
    "Item": "read",
    "Manifest": "manifest",
    "NotABundle": "errors",
    "NullRedactor": "redact",
    "Redactor": "redact",
    "SCHEMA": "manifest",
    "Source": "read",
    "VerifyResult": "verify",
    "expand_paths": "read",
    "open_source": "read",
    "verify": "verify",
}

__all__ = [
    "SCHEMA",
    "BundleError",
    "BundleWriter",
    "EvidenceStream",
    "Item",
    "Manifest",
    "NotABundle",
    "NullRedactor",
    "Redactor",
    "Source",
    "VerifyResult",
    "expand_paths",
    "open_source",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"forensics.bundle.{_HOME[name]}"), name)
