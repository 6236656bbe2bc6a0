"""Redact JSON documents as documents: strings are decoded first, so that no escape hides a secret, and names carry meaning.

A document in which nothing had to be replaced is returned byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from forensics.bundle._keys import Holds, env_value_allowed, holds, is_password
from forensics.bundle._spans import Mark

Text = Callable[[bytes], bytes]
"""Redacts one text of any number of lines."""

DOCUMENT_LIMIT_BYTES = 32 * 1024 * 1024
"""A larger document is redacted as text: parsed, it would need some ten times its size in memory."""
MAX_NESTED_DOCUMENTS = 4
_PLACEHOLDER = re.compile(r"<redacted:[a-z-]{2,16}:[0-9a-f]{8}>(?: x\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w.\-]{0,40}")
_PATH = re.compile(r"/[\w./@+\-]{1,300}")
_REPR_STRING = re.compile(r"([bru]{0,2})('(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?)", re.DOTALL)
_MANY_INTS = re.compile(r"(?:\d+[, ]+){3,}\d*")


class DocumentRedactor:
    """Walks a decoded JSON document."""

    def __init__(self, mark: Mark, request: Callable[[bytes], bytes], text: Text) -> None:
        self._mark = mark
        self._request = request
        self._text = text
        self._nested = 0

    def document(self, raw: bytes) -> bytes | None:
        """The redacted document, or None when the bytes are not one JSON document (then they are text)."""
        if len(raw) > DOCUMENT_LIMIT_BYTES or raw.lstrip()[:1] not in (b"{", b"["):
            return None
        try:
            before = json.loads(raw)
            after = self._walk(before, "")
            if after == before:
                return raw
            return json.dumps(after, ensure_ascii=True, separators=(",", ":")).encode()
        except (ValueError, RecursionError, MemoryError):  # cut, not JSON, or nested to kill parsers
            return None

    def _walk(self, value: Any, name: str) -> Any:
        if isinstance(value, str):
            return self._string(value, name)
        if isinstance(value, list):
            return self._list(value, name)
        if isinstance(value, dict):
            return self._dict(value)
        return value

    def _string(self, value: str, name: str) -> str:
        if not value:
            return value
        if "\x00" in value and name.endswith(("/environ", "/cmdline")):
            parts = value.split("\x00")
            new = [self._variable(part) for part in parts] if name.endswith("/environ") else self._list(parts, "")
            return "\x00".join(new)
        head = value.lstrip()[:1]
        if head in ("{", "[") and self._nested < MAX_NESTED_DOCUMENTS and value.rstrip()[-1:] in ("}", "]"):
            self._nested += 1
            nested = self.document(value.encode("utf-8", "surrogatepass"))
            self._nested -= 1
            if nested is not None:
                return nested.decode("utf-8", "surrogatepass")
        return self._text(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _list(self, value: list[Any], name: str) -> list[Any]:
        """A list of strings may be a command line: what follows --api-key is a key, up to the next option."""
        out: list[Any] = []
        hidden = ""
        for item in value:
            if isinstance(item, str):
                if item.startswith("-"):
                    option, equals, inline = item.lstrip("-").partition("=")
                    what = holds(option)
                    secret = what in (Holds.SECRET, Holds.MAYBE_SECRET)
                    if equals and secret and inline:
                        out.append(f"{item[: -len(inline)]}{self._hide('secret', inline)}")
                        hidden = ""
                        continue
                    hidden = "secret" if secret else "prompt" if what is Holds.PROMPT else ""
                    hidden = "" if equals else hidden
                elif hidden and item and not (hidden == "prompt" and item.isdigit()):
                    out.append(self._hide(hidden, item))
                    continue
            out.append(self._walk(item, name))
        return out

    def _dict(self, value: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, item in value.items():
            # a key may be a secret itself (request ids are keys of num_scheduled_tokens), a path may hold one
            name = self._text(key.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            out[name] = self._locals(item) if key == "locals" and isinstance(item, list) else self._item(key, item)
        return out

    def _item(self, key: str, item: Any) -> Any:
        what = holds(key)
        if what is Holds.NOTHING or item in (None, "", [], {}) or isinstance(item, bool):
            return self._walk(item, key)
        if what is Holds.ENVIRONMENT and isinstance(item, dict):
            return {name: self._of_environment(name, one) for name, one in item.items()}
        if isinstance(item, (int, float)):
            return self._hide("secret", str(item)) if what is Holds.SECRET and is_password(key) else item
        if what in (Holds.SECRET, Holds.MAYBE_SECRET):
            return self._every_string(item, lambda text: self._hide("secret", text))
        if what is Holds.REQUEST:
            return self._every_string(
                item, lambda text: self._request(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            )
        if isinstance(item, list) and len(item) == 1 and isinstance(item[0], str) and _PLACEHOLDER.fullmatch(item[0]):
            return item
        if what is Holds.TOKENS or (what in (Holds.PROMPT, Holds.TEXT) and _is_numbers(item)):
            return self._token_ids(item) if _is_numbers(item) else self._content("prompt", item)
        if what is Holds.SCHEMA:
            return self._content("schema", item) if not isinstance(item, str) or key != "schema" or "{" in item else self._walk(item, key)
        if what is Holds.PROSE and (not isinstance(item, str) or len(item.split()) < 3):
            return self._walk(item, key)
        if what in (Holds.PROMPT, Holds.TEXT, Holds.PROSE):
            return self._content("prompt", item)
        return self._walk(item, key)

    def _of_environment(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._variable(f"{name}={value}")[len(name) + 1 :]
        # as the live reader writes a dict with its type: the variables stand one level below
        return self._item("environ" if name in ("entries", "named") else name, value)

    def _content(self, kind: str, item: Any) -> str:
        return self._hide(kind, item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, separators=(",", ":")))

    def _token_ids(self, item: Any) -> list[str]:
        ids = re.findall(r"-?\d+", json.dumps(item))
        return [f"{self._hide('token-ids', ','.join(ids))} x{len(ids)}"]

    def _hide(self, kind: str, value: str) -> str:
        if _PLACEHOLDER.fullmatch(value):
            return value
        return self._mark(kind, value.encode("utf-8", "surrogatepass")).decode()

    def _every_string(self, item: Any, hide: Callable[[str], str]) -> Any:
        if isinstance(item, str):
            return hide(item) if item else item
        if isinstance(item, list):
            return [self._every_string(one, hide) for one in item]
        if isinstance(item, dict):
            return {key: self._every_string(one, hide) for key, one in item.items()}
        return item

    def _variable(self, assignment: str) -> str:
        """One NAME=value of an environment block, by allow-list."""
        name, equals, value = assignment.partition("=")
        if not equals:
            return assignment
        if env_value_allowed(name, value):
            return f"{name}={self._string(value, '')}"
        secret = holds(name) in (Holds.SECRET, Holds.MAYBE_SECRET)
        return f"{name}={self._hide('secret' if secret else 'env', value)}" if value else assignment

    def _locals(self, items: list[Any]) -> list[Any]:
        """Local variables of a frame (py-spy --locals): numbers, names and paths stay, everything else that is a string goes."""
        out: list[Any] = []
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("repr"), str):
                name = str(item.get("name", ""))
                item = {**item, "repr": self._repr(name, item["repr"])}
            out.append(item)
        return out

    def _repr(self, name: str, text: str) -> str:
        what = holds(name)
        if what in (Holds.SECRET, Holds.MAYBE_SECRET) and text not in ("None", "True", "False"):
            return self._hide("secret", text.strip("'\""))
        if what in (Holds.PROMPT, Holds.TEXT, Holds.PROSE, Holds.SCHEMA, Holds.TOKENS) and not re.fullmatch(
            r"-?[\d.]+|None|True|False|<[^'\"]*>", text
        ):
            kind = {Holds.SCHEMA: "schema", Holds.TOKENS: "token-ids"}.get(what, "prompt")
            return self._hide(kind, text.strip("'\""))
        text = self._string(text, "")
        if "<redacted:" in text and "'" not in text and '"' not in text:
            return text
        text = _MANY_INTS.sub(lambda match: f"{self._hide('token-ids', match[0])} ", text)
        return _REPR_STRING.sub(self._repr_string, text)

    def _repr_string(self, match: re.Match[str]) -> str:
        quote, inner = match[2][0], match[2][1:].removesuffix(match[2][0])
        if _WORD.fullmatch(inner) or _PATH.fullmatch(inner) or not inner.strip() or inner.startswith("<redacted:"):
            return match[0]
        return f"{match[1]}{quote}{self._hide('prompt', inner)}{quote}"


def _is_numbers(item: Any) -> bool:
    """A list of numbers, or of such lists, however deep (bounded by the parser)."""
    if not isinstance(item, list) or not item:
        return False
    return all(_is_numbers(one) if isinstance(one, list) else isinstance(one, (int, float)) and not isinstance(one, bool) for one in item)
