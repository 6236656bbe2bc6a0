"""Positions that any Python process can be found in. Ranked: the first pattern that matches says what a thread is doing.

The order is from the innermost call outward in meaning: a collective is entered through sockets and polls on some
backends, so it is asked for before them; a queue's get() waits on a Condition, so queues come before conditions.
"""

from forensics.engines._native_frames import NATIVE
from forensics.engines._profile import FramePattern

_COLLECTIVE = r"(all_?reduce\w*|all_?gather\w*|reduce_scatter\w*|all_?to_?all\w*|broadcast\w*|barrier|batch_isend_irecv)"

_LOOP = r"\S*(?:busy_loop|event_loop|worker_loop|main_loop|run_loop)\w*"

FRAMES = (
    # a loop that reads its next message, called straight from the loop: idle, whatever it reads from
    FramePattern(
        "rpc-idle",
        rf"(?m)^\S*(?:dequeue|recv\w*|read_message|get_next\w*|get|poll) \([^\n]*\n{_LOOP} \(",
        within=8,
        target="the next call",
    ),
    FramePattern("rpc-response", r"(?m)^\S*(?:get_response|wait_for_response\w*|collective_rpc) \(", within=8, target="a worker's answer"),
    # torch.distributed and the engines' communicators name their entry points after the operation
    FramePattern("collective", rf"(?m)^(?:\S*\.)?_?{_COLLECTIVE} \((?!.*shm_broadcast)", within=6, target="the other ranks of its group"),
    FramePattern("collective", r"(?m)^Work\.wait|^wait \(torch/distributed", within=4, target="the other ranks of its group"),
    FramePattern("gpu-sync", r"(?m)^(?:Event|Stream|ExternalStream)\.synchronize|^synchronize \(torch/", within=4, target="the GPU"),
    FramePattern(
        "queue-put", r"(?m)^(?:Queue|_?MPQueue|JoinableQueue)\.put \(|^put \(queue\.py", within=4, target="room in a bounded queue"
    ),
    FramePattern("queue-get", r"(?m)^(?:Queue|SimpleQueue|_?MPQueue)\.get \(|^get \(queue\.py", within=4, target="an item from a queue"),
    FramePattern("join", r"(?m)^Thread\.(?:join|_wait_for_tstate_lock) \(|^join \(threading", within=3, target="another thread's end"),
    FramePattern("future", r"(?m)^(?:Future\.)?result \(concurrent/futures/_base|^Future\.result", within=4, target="a future's result"),
    # without the class before Python 3.11, and by every reader but py-spy
    FramePattern(
        "event", r"(?m)^(?:(?:Event|Condition|Barrier|Semaphore)\.)?(?:wait|acquire|_wait) \(threading", within=3, target="an event"
    ),
    FramePattern("sleep", r"(?m)\A(?:sleep|time\.sleep)\b", within=1, target="time"),
    FramePattern(
        "poll",
        r"(?m)^(?:\S*\.)?(?:select|poll|_poll|accept|recv\w*|_recv\w*|recv_bytes|read|readline|readinto|getaddrinfo) \("
        r"|^(?:main \(multiprocessing/resource_tracker)|^_worker \(concurrent/futures",
        within=3,
        target="input",
    ),
    *NATIVE,
)
