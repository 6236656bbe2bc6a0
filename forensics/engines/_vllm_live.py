"""What is worth reading in the memory of vLLM's processes: counts, flags and sizes, found by name (v1 engine, 0.8 to 0.32).

Read in v1/engine/core.py, v1/executor/multiproc_executor.py, v1/core/sched/ and config/, and on running engines. The core's
main thread holds EngineCoreProc (or a subclass) in every state, a worker's main thread WorkerProc. The config objects are
shared by reference, so what they say is what the engine does, whatever the command line asked for.
"""

from collections.abc import Mapping

from forensics.engines._argv import WORLD_LIMIT
from forensics.engines._profile import LiveExpr, Stated
from forensics.model import Role

_CONFIG = "EngineCore.vllm_config"


def _core(name: str, *expressions: str) -> tuple[LiveExpr, ...]:
    return tuple(LiveExpr(name, expr, Role.CORE) for expr in expressions)


def _worker(name: str, *expressions: str) -> tuple[LiveExpr, ...]:
    return tuple(LiveExpr(name, expr, Role.WORKER) for expr in expressions)


SETTINGS = {
    **{name: name for name in ("async_scheduling", "batch_queue_size", "max_num_seqs", "output_rank", "world_size")},
    **{name: name for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")},
    "scheduler": "scheduler_cls",
    "executor": "distributed_executor",
    "execute_timeout_s": "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
}
"""Which of the values below are settings, by the name under which they are set (entrypoints, config/, envs.py)."""
LIVE = (
    # requests that came in and that no step has seen: the gauges of the metrics endpoint do not know them
    *_core("input_queue", "len(EngineCore.input_queue)"),
    *_core("output_queue", "len(EngineCore.output_queue)"),
    *_core("aborts_queue", "len(EngineCore.aborts_queue)"),
    *_core("running_requests", "len(EngineCore.scheduler.running)"),
    # a heap under the priority policy, before that a plain deque
    *_core("waiting_requests", "len(EngineCore.scheduler.waiting._heap)", "len(EngineCore.scheduler.waiting)"),
    *_core("batch_queue", "len(EngineCore.batch_queue)", "EngineCore.batch_queue"),  # None: one step at a time
    *_core("batch_queue_size", "EngineCore.batch_queue_size"),
    # calls that were sent and whose answer nobody has asked for yet; the one being waited for has already left it
    *_core("calls_in_flight", "len(EngineCore.model_executor.futures_queue)"),
    # the answer that is waited for: what was left of its limit when the wait began, since when, and what is left now
    LiveExpr("answer_limit_s", "dequeue_timeout", Role.CORE, passing=True),
    LiveExpr("answer_waited_s", "ReadTimeoutWithWarnings.started", Role.CORE, clock="age", passing=True),
    LiveExpr("answer_left_s", "ReadTimeoutWithWarnings.deadline", Role.CORE, clock="left", passing=True),
    *_core("async_scheduling", "EngineCore.async_scheduling", f"{_CONFIG}.scheduler_config.async_scheduling"),
    *_core("scheduler", "EngineCore.scheduler"),  # its class: AsyncScheduler or Scheduler
    *_core("executor", "EngineCore.model_executor"),
    *_core("executor_failed", "EngineCore.model_executor.is_failed"),
    *_core("tensor_parallel_size", f"{_CONFIG}.parallel_config.tensor_parallel_size"),
    *_core("pipeline_parallel_size", f"{_CONFIG}.parallel_config.pipeline_parallel_size"),
    *_core("data_parallel_size", f"{_CONFIG}.parallel_config.data_parallel_size"),
    *_core("world_size", f"{_CONFIG}.parallel_config.world_size"),
    *_core("nnodes", f"{_CONFIG}.parallel_config.nnodes"),
    *_core("node_rank", f"{_CONFIG}.parallel_config.node_rank"),
    *_core("output_rank", "EngineCore.model_executor.output_rank"),
    *_core("engine_index", "EngineCore.engine_index"),
    *_core("engines_running", "EngineCore.engines_running"),
    *_core("step_counter", "EngineCore.step_counter"),
    *_core("max_num_seqs", f"{_CONFIG}.scheduler_config.max_num_seqs"),
    *_core("execute_timeout_s", 'os.environ["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"]'),
    *_worker("rank", "WorkerProc.rank"),
    *_worker("async_scheduling", "WorkerProc.use_async_scheduling"),
    *_worker("async_output_queue", "len(WorkerProc.async_output_queue)"),
    *_worker("async_output_thread", "WorkerProc.async_output_copy_thread._native_id"),
)


def running(values: Mapping[str, str]) -> Stated | None:
    """The shape in the configuration that a core runs with."""

    def size(name: str) -> int | None:
        text = values.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and 0 < int(text) <= WORLD_LIMIT else None

    world, tp, dp, nodes = size("world_size"), size("tensor_parallel_size"), size("data_parallel_size"), size("nnodes")
    if world is None:
        return None
    # the core of a dense replica calls itself the only one, and under Ray nobody sets the number of nodes
    spread = nodes is not None and nodes > 1
    rank = values.get("node_rank", "")
    return Stated(
        world=world,
        tp=tp,
        dp=dp if dp is not None and dp > 1 else None,
        nodes=nodes if spread else None,
        node_rank=int(rank) if spread and rank.isascii() and rank.isdigit() and len(rank) < 10 else None,
    )
