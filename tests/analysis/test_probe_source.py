from collectors._http import PROBE_SOURCE as COLLECTORS
from forensics.model import PROBE_SOURCE


def test_collectors_and_analysis_agree_on_the_address_of_our_probes():
    assert COLLECTORS == PROBE_SOURCE
