from __future__ import annotations

from forensics.analysis.signatures import signatures

KERNEL = [s for s in signatures() if s.engine == "kernel"]


def test_each_kernel_line_is_known_by_one_signature():
    for mine in KERNEL:
        for text in mine.examples:
            found = [s.id for s in KERNEL if s.literal in text and (m := s.regex.search(text)) and s.read(m) is not None]
            assert found == [mine.id], text


def test_kernel_signatures_have_literals_and_ids_that_say_so():
    for s in KERNEL:
        assert s.id.startswith("kernel-") and len(s.literal) >= 6


def test_every_xid_is_known_once():
    for code in range(1, 200):
        text = f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=4711, name=python3, Ch 00000008"
        if code == 154:
            text = "NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
        found = [s for s in KERNEL if s.literal in text and (m := s.regex.search(text)) and s.read(m) is not None]
        assert len(found) == 1 and f"{code}" == found[0].regex.search(text)["code"], code


def test_forms_of_the_address_and_of_the_process():
    for text in (
        "NVRM: Xid (PCI:0000:9b:00): 62, 0000(0000) 00000000 00000000",
        "NVRM: Xid (0000:03:00): 62, 0000(0000) 00000000 00000000",
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 62, pid=12, name=a b, x",
        "NVRM: Xid (PCI:000f:01:00): 62, pid='<unknown>', name=<unknown>, x",
        "NVRM: Xid (PCI:0000:9b:00): 62, pid=<unknown>, name=<unknown>, x",
    ):
        assert [s.id for s in KERNEL if s.literal in text and (m := s.regex.search(text)) and s.read(m) is not None] == ["kernel-xid"], text
