"""What is measured: a server of N rank processes, each of 100 threads that wait at the bottom of 20 frames, and a heartbeat.

usage: bench_target.py PROCESSES THREADS FRAMES
Prints "ready PID…" when every thread is in place. On each line of stdin every rank reports the longest gap of its heartbeat
since the last report, and starts anew: "gaps SECONDS RAW …" in the order of the ranks. Ends when stdin closes.
"""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time

BEAT_S = 0.001


class Front(http.server.BaseHTTPRequestHandler):
    """Answers 501 to everything: a port that accepts and stays silent would make every probe wait for its limit."""

    def log_message(self, format: str, *args: object) -> None:
        pass


class Heartbeat:
    """Notices when the whole process is made to stand still.

    A beat that comes late because the processors were busy is no pause: the time for which this thread was ready to run and
    waited for one (schedstat) is taken off. What is left is sleep that it did not ask for, as under ptrace.
    """

    def __init__(self) -> None:
        self.longest = self.longest_raw = 0.0
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        last, waited = time.monotonic(), 0.0
        while True:
            time.sleep(BEAT_S)
            now = time.monotonic()
            was, waited = waited, int(os.pread(schedstat, 64, 0).split()[1]) / 1e9
            self.longest_raw = max(self.longest_raw, now - last)
            self.longest = max(self.longest, now - last - (waited - was))
            last = now

    def take(self) -> str:
        longest, raw, self.longest, self.longest_raw = self.longest, self.longest_raw, 0.0, 0.0
        return f"{longest} {raw}"


def descend(frames: int, arrived: threading.Semaphore, never: threading.Event) -> None:
    if frames > 2:  # Event.wait and Condition.wait are the last two
        descend(frames - 1, arrived, never)
        return
    arrived.release()
    never.wait()


def rank(threads: int, frames: int) -> None:
    arrived, never = threading.Semaphore(0), threading.Event()
    for number in range(threads - 2):  # with the main thread and the heartbeat
        # three frames of threading stand below ours and two above
        threading.Thread(target=descend, args=(frames - 4, arrived, never), name=f"waiter-{number}", daemon=True).start()
    for _ in range(threads - 2):
        arrived.acquire()
    heart = Heartbeat()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(heart.take(), flush=True)


def head(processes: int, threads: int, frames: int) -> None:
    front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
    threading.Thread(target=front.serve_forever, daemon=True).start()
    command = [sys.executable, __file__, str(processes), str(threads), str(frames), "--world-size", str(processes), "--rank"]
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen([*command, str(number)], stdin=pipe, stdout=pipe, text=True) for number in range(processes)]
    for each in ranks:
        assert each.stdout and each.stdout.readline() == "ready\n"
    print("ready", *(each.pid for each in ranks), flush=True)
    for _ in sys.stdin:
        for each in ranks:
            assert each.stdin
            each.stdin.write("\n")
            each.stdin.flush()
        print("gaps", *(each.stdout.readline().strip() for each in ranks if each.stdout), flush=True)
    for each in ranks:
        assert each.stdin
        each.stdin.close()
        each.wait()


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank(int(sys.argv[2]), int(sys.argv[3]))
    else:
        head(*map(int, sys.argv[1:4]))
