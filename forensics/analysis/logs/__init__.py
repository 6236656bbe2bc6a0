"""Log lines: which wrappers stand around them, whose clock dates them, and what the engine itself wrote."""

from forensics.analysis.logs._format import Format, Peeled
from forensics.analysis.logs.clocks import Clocks, survey
from forensics.analysis.logs.containers import unwrap
from forensics.analysis.logs.formats import FORMATS
from forensics.analysis.logs.peel import Hint, peel, peel_all
from forensics.analysis.times import Stamp

__all__ = ["FORMATS", "Clocks", "Format", "Hint", "Peeled", "Stamp", "peel", "peel_all", "survey", "unwrap"]
