"""What can keep a capture from happening at all. Each error carries its cure; everything less is an attempt in the bundle."""

from __future__ import annotations


class CaptureError(Exception):
    """`cure` is one sentence that the command line prints under the message; `exit_code` is what the command ends with."""

    exit_code = 1

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure


class NothingFound(CaptureError):
    """No engine on this node, and no log file was named."""

    exit_code = 4


class OutputUnusable(CaptureError):
    """The bundle cannot be written where it was asked for."""


class BadRequest(CaptureError):
    """An option that cannot be meant."""

    exit_code = 2
