"""Gloo: a source place in a bracket, or its own name."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="gloo",
    wrapper=False,
    starts="[",
    pattern=re.compile(r"\[(?P<at>[^\]\s]{0,200}gloo/[^\]\s]{1,200}\.(?:cc|h|cpp):\d{1,6})\] |\[Gloo\] (?=Rank (?P<rank>\d{1,6}) )"),
    engine="gloo",
    order=20,
    samples=(
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:52111",
        "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1",
    ),
    negatives=("[gloo] x", "[/src/other/pair.cc:561] x", "[Gloo] ranks"),
)
