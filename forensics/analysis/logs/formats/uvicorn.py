"""The HTTP server's lines: a level and a colon, padded to ten columns, and no time."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="uvicorn",
    wrapper=False,
    starts="DIWECT",
    pattern=re.compile(r"(?P<level>(?:INFO(?=: {5}\S)|(?:DEBUG|ERROR|TRACE)(?=: {4}\S)|WARNING(?=: {2}\S)|CRITICAL(?=: \S))): {1,5}"),
    order=20,
    samples=(
        'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
        "INFO:     Application startup complete.",
        "ERROR:    Exception in ASGI application",
        "WARNING:  Invalid HTTP request received.",
    ),
    negatives=("INFO:root:message", "INFO: one blank", "ERROR:     five blanks", "INFO      no colon"),
)
