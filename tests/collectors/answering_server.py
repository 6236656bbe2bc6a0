"""A server with one listening socket for each behaviour that it is given by name; prints {name: port} when ready.

    python -c "$(cat answering_server.py)" HOST NAME…

One thread, so that a behaviour that never ends (flood, drip) needs a server of its own. Ends with its stdin.
"""

import json
import os
import select
import socket
import sys
import time

EXPOSITION = b"engine_steps_total 7\n"
PAGES = {"/metrics": EXPOSITION, "/load": b'{"server_load": 3}', "/health": b"", "/version": b'{"version": "9"}'}


def head(status, *lines):
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def page(body, length=None):
    return head("200 OK", f"Content-Length: {length or len(body)}") + body


def answer(name, path, link):
    """Answer one request. True keeps the connection open."""
    if name == "good":
        link.sendall(page(PAGES[path]) if path in PAGES else head("404 Not Found", "Content-Length: 0"))
    elif name == "lingering":  # keeps the connection although asked to close it
        link.sendall(page(EXPOSITION))
        return True
    elif name == "chunked":
        pieces = b"7\r\nengine_\r\ne;x=1\r\nsteps_total 7\n\r\n0\r\n\r\n"
        link.sendall(head("200 OK", "Transfer-Encoding: chunked") + pieces)
    elif name == "mounted":
        there = head("307 Temporary Redirect", f"Location: http://elsewhere{path}/", "Content-Length: 0")
        link.sendall(page(EXPOSITION) if path.endswith("/") else there)
    elif name == "missing":
        link.sendall(head("404 Not Found", "Content-Length: 0"))
    elif name == "closed":
        link.sendall(head("401 Unauthorized", "Content-Length: 0"))
    elif name == "broken":
        link.sendall(head("500 Internal Server Error") + b"Traceback")
    elif name == "dead":
        link.sendall(head("503 Service Unavailable", "Content-Length: 0"))
    elif name == "garbage":
        link.sendall(b"\x15\x03\x03\x00\x02\x02\x50 not http")
    elif name == "short":
        link.sendall(page(EXPOSITION, 1000))
    elif name == "flood":
        link.sendall(head("200 OK"))
        while True:
            link.sendall(b"x" * 65536)
    elif name == "drip":
        link.sendall(head("200 OK") + EXPOSITION)
        while True:
            link.sendall(b"#")
            time.sleep(0.05)
    return False  # "silent" comes here at once


def main():
    host, *names = sys.argv[1:]
    listeners, kept = {}, []
    for name in names:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.bind((host, 0))
        listener.listen(16)
        listeners[listener.fileno()] = name, listener
    print(json.dumps({name: listener.getsockname()[1] for name, listener in listeners.values()}), flush=True)
    accepting = [fd for fd, (name, _) in listeners.items() if name != "deaf"]  # "deaf" never accepts
    while True:
        for fd in select.select([0, *accepting], [], [])[0]:
            if fd == 0:
                os._exit(0)
            name, listener = listeners[fd]
            link, _ = listener.accept()
            if name == "mute":  # accepts, and never reads
                kept.append(link)
                continue
            request = b""
            while b"\r\n\r\n" not in request:
                piece = link.recv(65536)
                if not piece:
                    break
                request += piece
            try:
                keep = bool(request) and answer(name, request.split()[1].decode(), link)
            except OSError:
                keep = False
            if keep:
                kept.append(link)
            else:
                link.close()


main()
