r"""The patterns of secrets in text, as data. All are bytes patterns and take linear time: every repeat before a fixed part is bounded.

Which lines they are tried on is decided in forensics.bundle._triggers; a new pattern here needs its literal there.
"""

from __future__ import annotations

import re

from forensics.bundle._keys import CONTENT_NAMES
from forensics.bundle._triggers import SECRET_WORDS

BRACKET = re.compile(rb"[\[\](){}]")
PLACEHOLDER = re.compile(rb"<redacted:[a-z-]{2,16}:[0-9a-f]{8}>(?: x\d+)?")

_Q = rb"(\\*[\"'])?"
_SEP = rb"[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}"
_SEP_OR_COMMA = rb"[ \t]{0,4}(=>|[:=,])[ \t]{0,4}"
_START = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F][0-9A-F]))"
"""A word begins here, also behind an escape sequence or a percent escape."""

BARE_WORD = re.compile(rb"<redacted:[a-z-]{2,16}:[0-9a-f]{8}>|[^\s,;&\"'\\)\]}>\x00]+(?:\\\\[^\s,;&\"'\\)\]}>\x00]*)*")
BARE_SHELL = re.compile(rb"<redacted:[a-z-]{2,16}:[0-9a-f]{8}>|[^\s\"'\\\x00]+")
BARE_LINE = re.compile(rb"[^\r\n\x00]+")

CONTENT = re.compile(
    rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(" + "|".join(re.escape(name) for name in CONTENT_NAMES).encode() + rb")" + _Q + _SEP, re.IGNORECASE
)
"""Groups: name, quote behind it. This and the other patterns of names are tried only where one of their words begins."""
EBNF = re.compile(rb"(?<![\w-])[A-Za-z_][\w-]{0,60}[ \t]{0,4}::=.*")
TOKEN_IDS = re.compile(rb"(?:token_ids|input_ids|output_ids|(?<![A-Za-z0-9_])tokens)" + _Q + _SEP, re.IGNORECASE)

SECRET_NAME = re.compile(rb"((?:" + "|".join(SECRET_WORDS).encode() + rb")[A-Za-z0-9_\-]{0,40})" + _Q + _SEP_OR_COMMA, re.IGNORECASE)
"""Groups: from the telling word on, quote behind it, separator."""
NAME_BEFORE = re.compile(rb"[A-Za-z0-9_.\-]*\Z")
SCHEME = re.compile(rb"(bearer|basic|token|digest|apikey|bot|negotiate|aws4-hmac-sha256)[ \t]+(?=\S)", re.IGNORECASE)
HEADER_NAME = re.compile(r"authorization|cookie|^x-|-key$|-token$", re.IGNORECASE)
"""Names whose value may follow behind a comma: ASGI prints headers as (name, value) tuples."""
BEARER = re.compile(rb"\bbearer[ \t]+([A-Za-z0-9._~+/=\-]{4,})", re.IGNORECASE)
BEARER_PROSE = frozenset(
    b"token tokens auth authentication authorization scheme header format realm required missing error credentials with from".split()
)
OPTION = re.compile(rb"--(?<!---)([A-Za-z][A-Za-z0-9_.\-]{1,60})" + _Q + rb"(=|[ \t\x00]+|[ \t]*,[ \t]*)")
NEXT_ITEM = re.compile(rb"[ \t]*,[ \t]*(?=\\*[\"'])")
NEXT_WORD = re.compile(rb"[ \t\x00]+(?=[^\s\x00-])")
BARE_STRING = re.compile(rb"[^\r\n\x00\"\\]+")
ENV_LINE = re.compile(rb"(?:^|\x00|(\\n|\"))[ \t]*(?:export[ \t]+|declare -x[ \t]+)?[A-Za-z_][A-Za-z0-9_]{0,80}\Z")

USERINFO = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]{1,20})://([^\s/?#\"'\\<>\x00]{1,256})@(?=[\w\[])")
QUERY = re.compile(
    rb"(?:[?&;]|\\u0026)(?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|signature|sig|awsaccesskeyid"
    rb"|googleaccessid|key-pair-id|key|token|code|auth|session)=([^&\s\"'\\<>#;,)]+)",
    re.IGNORECASE,
)

SHAPES = re.compile(
    _START + rb"(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|[sr]k_(?:live|test)_\w{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    rb"|glpat-[\w\-]{16,}|xox[a-z]-[A-Za-z0-9\-]{10,}|xapp-[\w\-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w\-]{30,}|ya29\.[\w\-.]{20,}"
    rb"|nvapi-[\w\-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w\-]{40,}|dckr_pat_[\w\-]{16,}|gsk_[A-Za-z0-9]{20,}|hvs\.[\w\-]{20,}"
    rb"|SG\.[\w\-]{16,}\.[\w\-]{16,}|eyJ[\w\-]{8,}\.[\w\-]{8,}(?:\.[\w\-]*)?)"
)
AWS_PAIR = re.compile(rb"(?:AKIA|ASIA)[A-Z0-9]{12,}[\s:,;\"'/=]{1,8}(?:\w{0,24}[\"' :=]{1,6})?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])")

PEM_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
PEM_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
PEM_BODY = re.compile(
    rb"(?:^|(?<=[\s\"'>|]))[A-Za-z0-9+/]{16,}={0,2}|^\s*[A-Za-z0-9+/]+={0,2}(?=\s*$)|(?<=\s)[A-Za-z0-9+/]{2,}={1,2}(?=\s*$)"
)

REQUEST_ID = re.compile(
    rb"(?<![A-Za-z0-9_])(?:((?:chat)?cmpl-)([^\s,'\"\\;()\[\]{}<>=|&]*[A-Za-z0-9_])"
    rb"|((?:embd|pool|score|rerank|classify|tokn|tokenize|transcribe|translate|generate-tokens|resp|msg)[-_])([0-9a-f]{16,32}[\w\-]*)"
    rb"|(req-)((?=[\w.\-]{0,80}\d)[\w.\-]{3,}\w))"
)
REQUEST_NAMED = re.compile(
    rb"(?:req(?:uest)?[_\- ]?ids?|(?:correlation|trace)[_\-]id|(?<![A-Za-z0-9_])rids?)" + _Q + _SEP_OR_COMMA, re.IGNORECASE
)
REQUEST_SPOKEN = re.compile(rb"\brequests?(?:\(s\))?[ \t]+(?:id[ \t]*[:=]?[ \t]*)?['\"]?([A-Za-z0-9][\w.@+\-]{5,200})", re.IGNORECASE)
REQUEST_SUFFIX = re.compile(rb"(?:-\d{1,4})?(?:-[0-9a-f]{8})?\Z")
"""vLLM appends the index of the prompt and then eight random digits; the front end logs the id without them."""

CODE_BELOW = re.compile(rb"File \"[^\"]+\", line \d+")
"""The line after this one in a traceback is source code: its `prompt=prompt` is nobody's prompt."""
NUMBERS_ONLY = re.compile(rb"[\s\[\](){},.\deE+\-]*\d[\s\[\](){},.\deE+\-]*(?:,?\s*(?:dtype|device)=[\w.:'\"]+[)\],\s]*)*")
STRING_ITEM = re.compile(rb"\\*[\"'](?:(?!\\*[\"']\s*:).)*$")
BRACKETS_ONLY = re.compile(rb"[\s\[\](){},]*")
KEYED_ITEM = re.compile(rb"\\*[\"'][^\"'\\]{1,80}\\*[\"']\s*:")
