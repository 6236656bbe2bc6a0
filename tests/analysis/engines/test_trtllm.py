"""Folders of TensorRT-LLM logs: US dates, ranks in brackets, a hang detector that ends the engine itself."""

from __future__ import annotations

import pytest

from tests.analysis.engines.folder import T0, raised, trtllm

KILL = "HangDetector: self-SIGKILL; relying on the launcher to propagate to peer ranks."


def ns(at_s: float) -> int:
    return int((T0 + at_s) * 1e9)


def started(world: int = 4) -> list[str]:
    return [trtllm(-300, f"start MpiSession with {world} workers", None), "INFO:     Application startup complete."]


def step(at_s: float, number: int, rank: int = 0, running: int = 3) -> str:
    states = "{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 3}"
    said = f"iter = {number}, global_rank = {rank}, rank = {rank}, currank_total_requests = 3/3, host_step_time = 50.5ms, "
    return trtllm(at_s, f"{said}prev_device_step_time = 49.1ms, num_scheduled_requests: {running}, states = {states}", rank)


def hung(ranks: int = 4, kill: str = KILL) -> list[str]:
    lines = [*started(ranks), *(step(t, 100 + t) for t in range(-60, 1, 5))]
    lines += [trtllm(300, "Hang detected after 300 seconds.", r, "E") for r in range(ranks)]
    said = "Hang detected on rank {} in PyExecutor; hard-killing and propagating to peer ranks."
    lines += [trtllm(301, said.format(r), r, "E") for r in range(ranks)]
    return [*lines, trtllm(301, kill, 1, "E")]


@pytest.mark.parametrize("kill", [KILL, "HangDetector: propagating hard-kill to all ranks via MPI_Abort."])
def test_a_hang_is_dated_by_its_limit_and_ends_by_the_engine_s_own_hand(look, kill: str) -> None:
    told = look(node0=hung(kill=kill))
    assert told.report.engines[0].kind == "trtllm"
    assert told.state == "dead"
    assert told.grade("engine-stalled") == told.grade("tool-self-kill") == told.grade("engine-died") == "established"
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)
    assert told.root == (None, None), "who notices a hang is mostly a victim of it"
    assert told.grade("host-oom-kill") is None
    assert told.report.engines[0].coverage.expected_ranks == (0, 1, 2, 3)


def test_a_version_that_does_not_kill_itself(look) -> None:
    lines = hung()[:-5] + [trtllm(301, f"Hang detected on rank {r} in PyExecutor.", r, "E") for r in range(4)]
    told = look(node0=lines)
    assert told.grade("engine-stalled") == "established"
    assert told.state == "stalled"
    assert told.grade("tool-self-kill") is None


def test_files_named_by_rank_are_one_engine(look) -> None:
    files = {f"rank{r}": [step(-5, 4412, r), step(0, 4413, r), trtllm(300, "Hang detected after 300 seconds.", r, "E")] for r in range(4)}
    told = look(**files)
    assert len(told.report.engines) == 1
    assert told.report.engines[0].coverage.expected_ranks == (0, 1, 2, 3)
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)


def test_a_second_node_has_the_ranks_that_the_first_lacks(look) -> None:
    head = [*started(4), *(step(t, 100 + t) for t in range(-60, 1, 5)), trtllm(300, "Hang detected after 300 seconds.", 1, "E")]
    told = look(node0=head, node1=[trtllm(300, "Hang detected after 300 seconds.", r, "E") for r in (2, 3)])
    assert [e.nodes for e in told.report.engines] == [("node0", "node1")]


def test_one_rank_s_loop_ends_by_an_exception(look) -> None:
    lines = [*started(2), *(step(t, 100 + t) for t in range(-60, 1, 5))]
    lines += [trtllm(4, "Error in event loop: CUDA error: an illegal memory access was encountered", 1, "E")]
    lines += raised(trtllm(4, "", 1, "E"), "RuntimeError: CUDA error: an illegal memory access was encountered")
    lines += [trtllm(304, "Hang detected after 300 seconds.", 0, "E"), trtllm(305, KILL, 0, "E")]
    told = look(node0=lines)
    assert told.state == "dead"
    assert told.root[1] == 1
    assert told.by_id["worker-exception-fatal"].since.earliest_ns == ns(4)
    assert told.report.first_event.at.earliest_ns == ns(4)


def test_a_healthy_server(look) -> None:
    told = look(node0=[*started(2), *(step(t, 100 + t) for t in range(-60, 1, 5))])
    assert told.state == "healthy"
    assert told.grade("healthy-serving") == "established"
    assert told.root == (None, None)


def test_a_world_of_one_names_no_rank(look) -> None:
    lines = [trtllm(-300, "start MpiSession with 1 workers", None), "INFO:     Application startup complete."]
    told = look(node0=[*lines, trtllm(300, "Hang detected after 300 seconds.", None, "E"), trtllm(300, KILL, None, "E")])
    assert told.report.engines[0].kind == "trtllm"
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)


def test_a_rank_that_fails_in_the_start(look) -> None:
    lines = [trtllm(-300, "start MpiSession with 2 workers", None)]
    lines += [trtllm(-200, "Failed to initialize executor on rank 1: CUDA out of memory. Tried to allocate 136.00 MiB.", 1, "E")]
    lines += raised(trtllm(-200, "", 1, "E"), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB.")
    lines += ["RuntimeError: Executor worker returned error"]
    told = look(node0=lines)
    assert told.by_id["worker-start-failed"].ranks == (1,)
    assert told.root[1] == 1


def place(rank: int, phase: str, iteration: int = 4413) -> str:
    said = (
        f"PyExecutor hang diagnostics: rank={rank}, iteration={iteration}, phase={phase}, phase_age=300.2s, forward_cuda_completion=pending"
    )
    return trtllm(300, said, rank, "E")


def test_the_rank_that_stands_apart_is_named(look) -> None:
    lines = [*hung()[:-5], place(0, "forward"), place(1, "forward"), place(2, "kv-transfer"), place(3, "forward")]
    told = look(node0=lines)
    assert told.grade("rank-divergence-collective") == "supported"
    assert told.root == ("rank-divergence-collective", 2)


def test_halves_that_stand_apart_name_no_rank(look) -> None:
    lines = [*hung()[:-5], place(0, "forward"), place(1, "forward"), place(2, "kv-transfer"), place(3, "kv-transfer")]
    told = look(node0=lines)
    assert told.grade("rank-divergence-collective") == "supported"
    assert told.root[1] is None


def test_ranks_at_one_place_do_not_diverge(look) -> None:
    told = look(node0=[*hung()[:-5], *(place(r, "forward") for r in range(4))])
    assert told.grade("rank-divergence-collective") is None
