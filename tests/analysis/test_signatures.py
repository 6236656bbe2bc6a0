from __future__ import annotations

import pytest

from forensics.analysis.signatures import ROLES, load_signature, signatures


@pytest.mark.parametrize("signature", signatures(), ids=lambda s: s.id)
def test_a_signature_matches_its_examples_and_nothing_of_its_counter_examples(signature):
    assert signature.examples and signature.role in ROLES and signature.source
    for text in signature.examples:
        assert signature.literal in text, "the scanner would never reach this line"
        assert signature.regex.search(text)
    for text in signature.counter_examples:
        assert not signature.regex.search(text)


def test_signatures_of_one_engine_do_not_claim_each_others_lines():
    for mine in signatures():
        for other in signatures():
            if mine is not other and mine.engine == other.engine == "vllm":
                assert not any(other.literal in e and other.regex.search(e) for e in mine.examples), (mine.id, other.id)


def test_advice_never_matches():
    for advice in ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", "set VLLM_LOGGING_LEVEL=DEBUG to see RPC call timeouts"):
        assert not [s.id for s in signatures() if s.literal and s.literal in advice and s.regex.search(advice)]


def test_a_broken_signature_is_refused():
    with pytest.raises(Exception, match="role"):
        load_signature('id="x"\nfeeds="y"\nengine="any"\nrole="boss"\nsource="s"\nliteral="l"\npattern="p"\nexamples=["lp"]')
