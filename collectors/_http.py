"""One bounded HTTP probe of a target's own port, and nothing else: plain sockets, because http.client costs 20 ms of start-up.

Every probe connects *from* PROBE_SOURCE where it goes to 127.0.0.1, so that our own connections can be told from those of
clients in any socket table of the same seconds, also from another collector's and also when a hung server keeps them open.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable

from collectors._contract import Request, Target, absence, os_error_outcome, read_bounded

BODY_LIMIT_BYTES = 4 * 1024 * 1024
HEAD_LIMIT_BYTES = 64 * 1024
SIDE_BY_SIDE = 16
PROBE_SOURCE = "127.70.79.82"
"""A loopback address that nobody else uses as a source ("FOR"): rows of /proc/net/tcp with it are our own probes."""
LOOPBACK = "127.0.0.1"


class Reply:
    """What came back. `status` is None when no status line did; `error` then says what happened instead."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.at_ns = time.time_ns()
        self.status: int | None = None
        self.latency_s = 0.0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.truncated = False
        self.failure: OSError | None = None
        self.garbage = False
        """Something answered, and it was not HTTP."""

    @property
    def error(self) -> str:
        if self.failure is not None:
            return f"{type(self.failure).__name__}: {self.failure.strerror or self.failure}"
        return "not HTTP" if self.garbage else ""

    def json(self) -> str:
        """The probe as evidence of kind "http"; `status` null and `error` empty is a connection that was all we asked for."""
        body: dict[str, object] = {"url": self.url, "status": self.status, "latency_s": round(self.latency_s, 6), "error": self.error}
        return json.dumps({**body, "body": self.body.decode("utf-8", "backslashreplace"), "headers": self.headers})

    def outcome(self) -> tuple[str, str, str]:
        """(outcome, reason, cure) of the attempt."""
        if isinstance(self.failure, TimeoutError):
            return "TIMEOUT", f"no answer within {self.latency_s:.1f} s", ""
        if self.failure is not None:
            return os_error_outcome(self.failure)
        if self.url.startswith("tcp:"):
            return "OK", "", ""
        if self.status is None:
            return "UNSUPPORTED", "the answer is not HTTP" if self.body else "closed without an answer: not HTTP, or TLS", ""
        if self.status in (404, 405, 501):
            return "ABSENT", f"HTTP {self.status}", ""
        if self.status in (401, 403):
            return "DENIED", f"HTTP {self.status}", "the endpoint asks for credentials: allow it from loopback"
        if self.truncated:
            return "PARTIAL", f"the answer was cut at {len(self.body)} bytes or by its time limit", ""
        return ("OK", "", "") if self.status == 200 else ("PARTIAL", f"HTTP {self.status}", "")


def listen_address(target: Target, port: int) -> str:
    """The address to probe: 127.0.0.1 wherever the target listens there, else the one address that it does listen on.

    Read from the target's own socket table, so that a server bound to one interface is found and nothing else ever probed.
    Where no listener shows, 127.0.0.1: the refusal is then the finding.
    """
    found: list[str] = []
    for table in ("tcp", "tcp6"):
        try:
            text, _ = read_bounded(f"/proc/{target.pid}/net/{table}", 1 << 20)
        except OSError:
            continue
        for row in text.decode("ascii", "replace").splitlines()[1:]:
            fields = row.split()
            address, _, hex_port = fields[1].partition(":")
            if fields[3] == "0A" and int(hex_port, 16) == port:
                found.append(decode_address(address))
    # a server on "::" takes IPv4 as well, unless somebody made it IPv6 only: then 127.0.0.1 shows in neither table
    if not found or any(address in ("0.0.0.0", LOOPBACK, "::") for address in found):
        return LOOPBACK
    return found[0]


def decode_address(word: str) -> str:
    """An address of /proc/net/tcp or tcp6: 32-bit words in the byte order of this machine."""
    raw = b"".join(struct.pack("=I", int(word[i : i + 8], 16)) for i in range(0, len(word), 8))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def probe_host(target: Target, port: int, told: str = "") -> str:
    """Where to probe. Raises OSError when `told` is neither loopback nor an address that the target listens on."""
    actual = listen_address(target, port)
    if told and told not in (actual, LOOPBACK, "::1", "localhost"):
        raise OSError(errno.EOPNOTSUPP, f"{told} is neither loopback nor an address that pid {target.pid} listens on")
    return told or actual


class _Inside:
    """Be in the network namespace of a process while a socket is made; a socket stays where it was made.

    127.0.0.1 of the host is another place than 127.0.0.1 of a container: without this we would ask a stranger.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.own = self.other = -1

    def __enter__(self) -> None:
        theirs = f"/proc/{self.pid}/ns/net"
        try:
            if os.readlink(theirs) == os.readlink("/proc/self/ns/net"):
                return
        except PermissionError:
            return  # cannot be told apart; whoever may not read this link may not enter either
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.other = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
        self._set(self.other)

    def __exit__(self, *_: object) -> None:
        if self.own >= 0:
            self._set(self.own)
            os.close(self.own)
            os.close(self.other)

    @staticmethod
    def _set(fd: int) -> None:
        import ctypes  # os.setns begins with Python 3.12

        if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) != 0:  # CLONE_NEWNET
            number = ctypes.get_errno()
            raise OSError(number, f"entering the network namespace: {os.strerror(number)}")


def connect(target: Target, host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection to the target's port, made in its network namespace. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with _Inside(target.pid):
        link = socket.socket(family, socket.SOCK_STREAM)
    try:
        link.settimeout(timeout_s)
        if host == LOOPBACK:
            try:
                link.bind((PROBE_SOURCE, 0))
            except OSError:
                pass  # a loopback narrower than 127/8: the probe is worth more than its mark
        link.connect((host, port))
    except OSError:
        link.close()
        raise
    return link


def url_of(host: str, port: int, path: str, scheme: str = "http") -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def probe_connect(target: Target, host: str, port: int, timeout_s: float) -> Reply:
    """Only connect. Says that the kernel completes connections for the port, and nothing of the process behind it."""
    reply = Reply(url_of(host, port, "", "tcp"))
    began = time.monotonic()
    try:
        connect(target, host, port, timeout_s).close()
    except OSError as error:
        reply.failure = error
    reply.latency_s = time.monotonic() - began
    return reply


def get(target: Target, host: str, port: int, path: str, timeout_s: float, limit: int = BODY_LIMIT_BYTES) -> Reply:
    """GET `path`, bounded in time as a whole and in bytes. Never raises: what went wrong is in the reply."""
    reply = _get(target, host, port, path, timeout_s, limit)
    if reply.status in (301, 302, 307, 308) and reply.headers.get("location", "").endswith(path + "/"):
        reply = _get(target, host, port, path + "/", timeout_s, limit)  # a mounted application wants the slash
    return reply


def unique_ports(request: Request) -> list[tuple[Target, int]]:
    """Every port of every target, in order; one that several API processes of a network namespace share comes once."""
    found: dict[tuple[str, int], Target] = {}
    for target in request.targets:
        try:
            space = "" if request.sysroot else os.readlink(f"/proc/{target.pid}/ns/net")
        except OSError:
            space = ""  # another user's, or gone: taken for our own namespace, as the probe itself will
        for port in target.ports:
            found.setdefault((space, port), target)
    return [(target, port) for (_, port), target in found.items()]


def ask(request: Request, target: Target, port: int, path: str, timeout_s: float, limit: int = BODY_LIMIT_BYTES) -> Reply | None:
    """GET `path`, or only connect where it is ""; None when the target is gone (or was recorded) and nobody may be asked."""
    if request.sysroot or absence(target):
        return None
    try:
        host = probe_host(target, port, str(request.options.get("host", "")))
    except OSError as error:
        reply = Reply(url_of(LOOPBACK, port, path))
        reply.failure = error
        return reply
    return get(target, host, port, path, timeout_s, limit) if path else probe_connect(target, host, port, timeout_s)


def unasked(request: Request, target: Target) -> tuple[str, str, str]:
    """(outcome, reason, cure) where `ask` gave None."""
    if request.sysroot:
        return "ABSENT", "no live processes in a recorded tree", ""
    return absence(target) or ("ABSENT", "the process was gone", "")


def at_once(calls: Iterable[Callable[[], Reply | None]]) -> list[Reply | None]:
    """Run the probes side by side, so that a server that never answers costs one timeout and not one for each."""
    todo = list(calls)
    replies: dict[int, Reply | None] = {}

    def run(index: int) -> None:
        replies[index] = todo[index]()

    for start in range(0, len(todo), SIDE_BY_SIDE):
        threads = []
        for index in range(start, min(start + SIDE_BY_SIDE, len(todo))):
            thread = threading.Thread(target=run, args=(index,), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads on this host: then one after the other
                run(index)
            else:
                threads.append(thread)
        for thread in threads:
            thread.join()
    return [replies[index] for index in range(len(todo))]


def slug(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-") or "root"


def _get(target: Target, host: str, port: int, path: str, timeout_s: float, limit: int) -> Reply:
    reply = Reply(url_of(host, port, path))
    began = time.monotonic()
    raw = bytearray()
    try:
        with connect(target, host, port, timeout_s) as link:
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n".encode("ascii"))
            while len(raw) < limit + HEAD_LIMIT_BYTES:
                link.settimeout(max(0.001, began + timeout_s - time.monotonic()))
                piece = link.recv(262144)
                if not piece:
                    break
                raw += piece
                if time.monotonic() > began + timeout_s:  # a drip feed never runs into the timeout of a single recv
                    raise TimeoutError("timed out")
                if _complete(raw):
                    break
            else:
                reply.truncated = True
    except OSError as error:
        # what had arrived by then is kept; with a status line it is an answer that was cut
        reply.failure = error
    reply.latency_s = time.monotonic() - began
    _parse(bytes(raw), reply, limit)
    return reply


def _split(raw: bytes | bytearray) -> tuple[bytes, dict[str, str], int] | None:
    """(status line, headers, offset of the body), or None while the head is incomplete."""
    end = raw.find(b"\r\n\r\n", 0, HEAD_LIMIT_BYTES)
    if end < 0 or not raw.startswith(b"HTTP/"):
        return None
    first, *lines = bytes(raw[:end]).split(b"\r\n")
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}, end + 4


def _complete(raw: bytearray) -> bool:
    """Whether the whole body is there, for servers that keep the connection open although asked to close it."""
    head = _split(raw)
    if head is None:
        return False
    _, headers, start = head
    length = headers.get("content-length", "")
    if length.isdigit():
        return len(raw) - start >= int(length)
    return headers.get("transfer-encoding", "").lower() == "chunked" and raw.endswith(b"0\r\n\r\n")


def _parse(raw: bytes, reply: Reply, limit: int) -> None:
    head = _split(raw)
    words = head[0].split(None, 2) if head else []
    if head is None or len(words) < 2 or not words[1].isdigit():
        reply.garbage = bool(raw)
        reply.body = raw[:limit]
        return
    _, reply.headers, start = head
    reply.status = int(words[1])
    body = raw[start:]
    if reply.headers.get("transfer-encoding", "").lower() == "chunked":
        body = _dechunk(body)
    short = len(body) < int(reply.headers["content-length"]) if reply.headers.get("content-length", "").isdigit() else False
    if reply.failure is not None or len(body) > limit or short:
        reply.truncated, reply.failure = True, None
    reply.body = body[:limit]


def _dechunk(raw: bytes) -> bytes:
    """The content of a chunked body, as far as it goes."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = raw.find(b"\r\n", at)
        try:
            size = int(raw[at:end].split(b";")[0], 16) if end >= 0 else 0
        except ValueError:
            size = 0
        if size <= 0:
            return b"".join(parts)
        parts.append(raw[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
