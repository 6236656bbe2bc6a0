"""How firmly something may be said."""

from __future__ import annotations

import enum


class Grade(str, enum.Enum):
    """How firmly a finding may be said."""

    ESTABLISHED = "established"
    """The mechanism itself was observed and no other reading fits the captured evidence."""
    SUPPORTED = "supported"
    """Independent observations agree and nothing contradicts them, but the mechanism itself was not seen."""
    POSSIBLE = "possible"
    """Consistent with the evidence, no more."""
    REFUTED = "refuted"
    """A cited observation contradicts it."""
    NOT_ASSESSABLE = "not assessable"
    """The evidence that it needs was denied, timed out or never collected."""

    @property
    def strength(self) -> int:
        return {"established": 3, "supported": 2, "possible": 1}.get(self.value, 0)
