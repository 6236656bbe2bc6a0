"""Where a vLLM process can be found standing (v1 engine, 0.6 to 0.32), most specific first; then the generic positions.

Read in v1/executor/multiproc_executor.py, v1/engine/core.py and distributed/device_communicators/shm_broadcast.py, and
seen on running engines. The reader of the broadcast ring is the same code in the worker's idle loop and in the core's wait
for an answer: only the caller tells them apart.
"""

from forensics.engines._generic_frames import FRAMES as GENERIC
from forensics.engines._profile import FramePattern

FRAMES = (
    # a worker between calls: dequeue called straight from the busy loop
    FramePattern("rpc-idle", r"(?m)^\S*dequeue \([^\n]*\n\S*worker_busy_loop \(", within=12, target="the next call from the core"),
    # the core waits for the one rank that answers (the output rank), whoever is to blame
    FramePattern("rpc-response", r"(?m)^\S*dequeue \([^\n]*\n\S*get_response \(", within=12, target="the answer of the output rank"),
    FramePattern("ring-full", r"(?m)^\S*acquire_write \(", within=6, target="a free slot in the broadcast ring"),
    FramePattern("core-idle", r"(?m)^\S*_process_input_queue \(", within=8, target="a request"),
    # follower nodes and monitors
    FramePattern(
        "monitor", r"(?m)^\S*monitor_(?:workers|engine\w*|death_pipe\S*) \(|^\S*death_pipe_monitor \(", within=8, target="a process to end"
    ),
    *GENERIC,
)

WORKER_BUSY = r"(?m)^\S*(?:_execute_worker_rpc|execute_model|sample_tokens|execute_dummy_batch) \("
"""A worker that has taken a call and is inside it."""
