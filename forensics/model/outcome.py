"""What became of an attempt to obtain evidence. Each word says what a reader may conclude from it."""

from __future__ import annotations

import enum


class Outcome(str, enum.Enum):
    """The one word an attempt leaves behind. The value is stable: it stands in every bundle ever written."""

    OK = "OK"
    """Everything asked for was read. Its absence from the evidence is absence on the node."""
    PARTIAL = "PARTIAL"
    """Some of it was read before a bound, a death or an error. What is there is true; what is missing proves nothing."""
    EMPTY = "EMPTY"
    """Looked, and there was nothing there. As good as OK for a negative claim."""
    ABSENT = "ABSENT"
    """This node has no such source (no NVML, no thermal zones). The question does not arise here."""
    DENIED = "DENIED"
    """The source exists and we were not allowed to read it. Nothing may be concluded; `cure` says what would help."""
    TIMEOUT = "TIMEOUT"
    """The source did not answer within its bound. That may itself be a symptom; nothing else may be concluded."""
    UNSUPPORTED = "UNSUPPORTED"
    """The source answered in a form that this version cannot read."""
    SKIPPED = "SKIPPED"
    """Not tried, for the reason given (profile, deadline already spent, target gone before its turn)."""
    FAILED = "FAILED"
    """Our own defect. Nothing may be concluded, and the reason is worth reporting upstream."""

    @property
    def seen(self) -> bool:
        """True when the evidence may carry a negative claim: it was read whole, or is known to be empty."""
        return self in (Outcome.OK, Outcome.EMPTY)

    @property
    def blind(self) -> bool:
        """True when the evidence exists (or may exist) and was not obtained: no rule may call itself clear on it."""
        return self in (Outcome.DENIED, Outcome.TIMEOUT, Outcome.FAILED, Outcome.UNSUPPORTED, Outcome.SKIPPED)
