"""The one error of this package: it says what is wrong and what helps."""

from __future__ import annotations


class BundleError(Exception):
    """A bundle cannot be written or read at all. `cure` is one sentence that the command line prints under the message.

    Everything less than that (a cut file, a denied one, a hostile entry) is not an error but a loss, listed with what was read.
    """

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure


class NotABundle(BundleError):
    """The path can be read and holds nothing that a bundle holds."""
