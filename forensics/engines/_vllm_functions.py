"""The functions that make vLLM move (v1 engine, 0.32), by module and name: a capture says when their code comes from elsewhere.

Read in v1/executor/multiproc_executor.py, v1/engine/core.py and distributed/device_communicators/shm_broadcast.py; none is decorated there.
"""

from forensics.engines._profile import WatchedFunction
from forensics.model import Role

_RING = "vllm.distributed.device_communicators.shm_broadcast"
_EXECUTOR = "vllm.v1.executor.multiproc_executor"
_CORE = "vllm.v1.engine.core"


def _watched(role: Role, module: str, *names: str) -> tuple[WatchedFunction, ...]:
    return tuple(WatchedFunction(module, name, role) for name in names)


FUNCTIONS = (
    # the way of a call from the core to its ranks and back: what a patch against a hang touches, or a plugin
    *_watched(Role.CORE, _RING, "SpinCondition.wait", "MessageQueue.enqueue", "MessageQueue.dequeue"),
    *_watched(Role.CORE, _EXECUTOR, "MultiprocExecutor.collective_rpc", "MultiprocExecutor.execute_model", "FutureWrapper.result"),
    *_watched(Role.CORE, _CORE, "EngineCore.step", "EngineCore.step_with_batch_queue", "EngineCoreProc._process_input_queue"),
    *_watched(Role.CORE, "vllm.v1.core.sched.scheduler", "Scheduler.schedule", "Scheduler.update_from_output"),
    *_watched(Role.WORKER, _RING, "SpinCondition.wait", "MessageQueue.enqueue", "MessageQueue.dequeue"),
    *_watched(Role.WORKER, _EXECUTOR, "WorkerProc.worker_busy_loop", "WorkerProc.enqueue_output", "WorkerProc.handle_output"),
)
