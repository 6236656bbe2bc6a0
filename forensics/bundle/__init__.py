"""Bundles: written on a sick node, read anywhere, trusted nowhere. Names load their module on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.bundle._stream import EvidenceStream
    from forensics.bundle.errors import BundleError, NotABundle
    from forensics.bundle.manifest import SCHEMA, Manifest
    from forensics.bundle.read import Item, Source, open_source, open_sources
    from forensics.bundle.redact import NullRedactor, Redactor
    from forensics.bundle.verify import VerifyResult, verify_bundle
    from forensics.bundle.write import BundleWriter

_HOME = {
    "BundleError": "errors",
    "BundleWriter": "write",
    "EvidenceStream": "_stream",
    "Item": "read",
    "Manifest": "manifest",
    "NotABundle": "errors",
    "NullRedactor": "redact",
    "Redactor": "redact",
    "SCHEMA": "manifest",
    "Source": "read",
    "VerifyResult": "verify",
    "open_source": "read",
    "open_sources": "read",
    "verify_bundle": "verify",
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
    "open_source",
    "open_sources",
    "verify_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"forensics.bundle.{_HOME[name]}"), name)
