"""Finding the few lines of a log that matter, in a log of any size: literals over raw bytes, exact patterns only where one stands.

One pass over the bytes, piece by piece, in as many processes as there are processors:

* every line in which a signature's literal stands is a candidate, with its offset; line numbers are worked out for those that are used;
* lines of counters ("stats") are all used where they are not too many, and chosen where they are;
* in a large log, candidates that would become the same hit of the same process are counted here, and only the first and the last of them
  go on to be taken apart.
"""

from forensics.analysis.scan._base import EVERY_BYTES, FIRST, LAST, LINE_BYTES, Candidate, Found
from forensics.analysis.scan.files import scan
from forensics.analysis.scan.literals import FALLBACK_NOTE, Plan, engine_of_search

__all__ = ["EVERY_BYTES", "FALLBACK_NOTE", "FIRST", "LAST", "LINE_BYTES", "Candidate", "Found", "Plan", "engine_of_search", "scan"]
