"""Who is who: titles, ranks, families and nodes, from whole process tables down to bare log prefixes. No real process here."""

from __future__ import annotations

import time

import pytest

from forensics import engines
from forensics.engines.exposition import parse
from forensics.engines.progress import ProgressReading, held, moved, read_progress
from forensics.model import EngineInstance, ProcessInfo, Role

SERVE = "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve /models/m --port 8100"
TRACKER = "/opt/vllm/bin/python3 -B -c from multiprocessing.resource_tracker import main;main(32)"


def process(pid: int, ppid: int | None, line: str, **more: object) -> ProcessInfo:
    """A process as /proc shows it: titled ones keep one argument."""
    argv = (line,) if "::" in line else tuple(line.split(" ", 3)) if " -c " in line else tuple(line.split())
    comm = line.split(maxsplit=1)[0].rpartition("/")[2][:15] if "::" not in line else line[:15]
    fields = {"argv": argv, "title": line, "comm": comm, **more}
    return ProcessInfo(pid=pid, ppid=ppid, **fields)  # type: ignore[arg-type]


def named(pid: int, name: str, node: str = "") -> ProcessInfo:
    """A process of which a log prefix is all that is known."""
    return ProcessInfo(pid=pid, title=name, node=node)


def ranks(engine: EngineInstance) -> dict[int, int | None]:
    return {p.pid: p.rank.rank if p.rank else None for p in engine.workers}


def roles(engine: EngineInstance) -> dict[int, Role]:
    return {p.pid: p.role for p in engine.processes}


def only(processes: list[ProcessInfo], **more: object) -> EngineInstance:
    found = engines.identify(processes, **more)  # type: ignore[arg-type]
    assert len(found) == 1, [(e.kind, [p.pid for p in e.processes]) for e in found]
    return found[0]


def tp2(base: int = 100, serve: str = SERVE + " -tp 2", **more: object) -> list[ProcessInfo]:
    return [
        process(base, 1, serve, **more),
        process(base + 1, base, TRACKER, **more),
        process(base + 2, base, "VLLM::EngineCore", **more),
        process(base + 3, base + 2, "VLLM::Worker_TP0", **more),
        process(base + 4, base + 2, "VLLM::Worker_TP1", **more),
    ]


def test_tensor_parallel_server() -> None:
    engine = only(tp2(listening_ports=(8100,), log_files=("/log/a",)))
    assert (engine.kind, engine.world_size, engine.dp_size, engine.ports) == ("vllm", 2, 1, (8100,))
    assert ranks(engine) == {103: 0, 104: 1}
    assert roles(engine)[100] is Role.API and roles(engine)[101] is Role.HELPER and roles(engine)[102] is Role.CORE
    assert engine.log_files == ("/log/a",)
    assert {p.label for p in engine.processes} == {"api", "resource tracker", "core", "worker TP0", "worker TP1"}


def test_the_prefix_of_titles_is_configurable() -> None:
    assert ranks(
        only([process(1, None, "acme.LLM::EngineCore"), process(2, 1, "acme.LLM::Worker_TP0"), process(3, 1, "acme.LLM::Worker_TP1")])
    ) == {
        2: 0,
        3: 1,
    }


def test_pipeline_and_tensor_ranks_are_global() -> None:
    workers = [process(10 + i, 2, f"VLLM::Worker_PP{pp}_TP{tp}") for i, (pp, tp) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)])]
    engine = only(
        [process(1, 0, SERVE + " --tensor-parallel-size=2 --pipeline_parallel_size 2"), process(2, 1, "VLLM::EngineCore"), *workers]
    )
    assert ranks(engine) == {10: 0, 11: 1, 12: 2, 13: 3}
    assert engine.world_size == 4
    without_command = only([process(2, 1, "VLLM::EngineCore"), *workers])
    assert ranks(without_command) == ranks(engine)


def test_dense_data_parallel_workers_take_their_replica_from_the_parent() -> None:
    engine = only(
        [
            process(1, 0, SERVE + " --data-parallel-size 2 --api-server-count 2"),
            process(2, 1, "VLLM::APIServer_0"),
            process(3, 1, "VLLM::APIServer_1"),
            process(4, 1, "VLLM::DPCoordinator"),
            process(5, 1, "VLLM::EngineCore_DP0"),
            process(6, 1, "VLLM::EngineCore_DP1"),
            process(7, 5, "VLLM::Worker"),
            process(8, 6, "VLLM::Worker"),
        ]
    )
    found = {p.pid: (p.rank.rank, p.rank.dp, p.rank.world_size) for p in engine.workers if p.rank}
    assert found == {7: (0, 0, 1), 8: (0, 1, 1)}
    assert (engine.dp_size, engine.world_size) == (2, 1)
    assert roles(engine)[1] is Role.LAUNCHER and roles(engine)[4] is Role.COORDINATOR and roles(engine)[3] is Role.API


def test_expert_parallel_title() -> None:
    engine = only(
        [process(1, 0, "VLLM::EngineCore_DP0"), process(2, 1, "VLLM::Worker_DP0_TP1_EP1"), process(3, 1, "VLLM::Worker_DP0_TP0_EP0")]
    )
    worker = next(p for p in engine.workers if p.pid == 2)
    assert worker.rank and (worker.rank.rank, worker.rank.dp, worker.rank.tp, worker.rank.ep) == (1, 0, 1, 1)


def test_workers_that_are_still_starting_have_no_rank_yet() -> None:
    engine = only(
        [process(1, 0, SERVE + " -tp 2"), process(2, 1, "VLLM::EngineCore"), process(3, 2, "VLLM::Worker"), process(4, 2, "VLLM::Worker")]
    )
    assert ranks(engine) == {3: None, 4: None}
    assert engine.world_size == 2


def test_a_world_of_one_lives_in_the_core() -> None:
    engine = only([process(1, 0, SERVE), process(2, 1, "VLLM::EngineCore")])
    core = next(p for p in engine.processes if p.role is Role.CORE)
    assert core.rank and core.rank.rank == 0 and engine.world_size == 1


def test_zombie_with_nothing_but_a_cut_name_gets_the_rank_nobody_else_holds() -> None:
    table = [*tp2()[:-1], ProcessInfo(pid=104, ppid=102, comm="VLLM::Worker_TP", state="Z")]
    assert ranks(only(table)) == {103: 0, 104: 1}
    assert ranks(only(table[1:])) == {103: 0, 104: None}, "without a stated size it could be any rank"


def test_sizes_of_another_server_are_not_borrowed() -> None:
    other = [process(500, 2, "VLLM::EngineCore", session=9), process(501, 500, "VLLM::Worker", session=9)]
    found = engines.identify([*tp2(session=100), *other])
    assert [ranks(engine) for engine in found] == [{103: 0, 104: 1}, {501: 0}]


def test_the_world_is_known_when_every_worker_is_dead() -> None:
    engine = only(tp2()[:3])
    assert engine.world_size == 2 and engine.workers == ()


def test_orphans_of_a_dead_head_stay_together() -> None:
    table = [p for p in tp2(session=100) if p.pid not in (100, 101, 102)]
    orphans = [ProcessInfo(pid=p.pid, ppid=1, argv=p.argv, title=p.title, session=p.session) for p in table]
    assert ranks(only(orphans)) == {103: 0, 104: 1}


def test_orphan_joins_its_head_by_log_but_not_the_head_of_a_later_run() -> None:
    head = tp2(log_files=("/log/a",), started_ns=1000 * 10**9)
    young = process(50, 1, "VLLM::Worker_TP2", log_files=("/log/a",), started_ns=1010 * 10**9)
    old = process(51, 1, "VLLM::Worker_TP1", log_files=("/log/a",), started_ns=10 * 10**9)
    assert 50 in ranks(only([*head, young]))
    assert sorted(len(e.processes) for e in engines.identify([*head, old])) == [1, 5]


def test_two_servers_on_one_node_stay_apart() -> None:
    found = engines.identify([*tp2(300, session=300), *tp2(100, session=100)])
    assert [(e.id, e.processes[0].pid) for e in found] == [("e0", 100), ("e1", 300)]
    assert [p.info.pid for p in found[0].workers] == [103, 104]


def follower(node: str, address: str, tp: int = 2) -> list[ProcessInfo]:
    serve = f"{SERVE} --headless --nnodes 2 --node-rank 1 --master-addr {address} --master-port 29600 -tp {tp}"
    return [process(700, 1, serve, node=node), process(701, 700, "VLLM::Worker_TP1", node=node)]


def head(node: str, address: str) -> list[ProcessInfo]:
    serve = f"{SERVE} --nnodes 2 --node-rank 0 --master-addr {address} --master-port 29600 -tp 2"
    return [
        process(100, 1, serve, node=node),
        process(102, 100, "VLLM::EngineCore", node=node),
        process(103, 102, "VLLM::Worker_TP0", node=node),
    ]


def test_nodes_merge_when_they_state_the_same_rendezvous() -> None:
    engine = only([*head("a", "10.0.0.1"), *follower("b", "10.0.0.1")])
    assert engine.nodes == ("a", "b") and ranks(engine) == {103: 0, 701: 1} and engine.world_size == 2


@pytest.mark.parametrize(
    ("address", "other", "tp"),
    [("10.0.0.1", "10.0.0.2", 2), ("127.0.0.1", "127.0.0.1", 2), ("10.0.0.1", "10.0.0.1", 4)],
    ids=["other master", "each its own loopback", "other world"],
)
def test_nodes_stay_apart_otherwise(address: str, other: str, tp: int) -> None:
    assert len(engines.identify([*head("a", address), *follower("b", other, tp)])) == 2


def test_two_nodes_on_one_host_are_one_engine() -> None:
    assert ranks(only([*head("a", "127.0.0.1"), *follower("a", "127.0.0.1")])) == {103: 0, 701: 1}


def test_bare_log_prefixes() -> None:
    engine = only([named(1, "APIServer"), named(2, "EngineCore"), named(3, "Worker_TP0"), named(4, "Worker_TP1")])
    assert engine.kind == "vllm" and ranks(engine) == {3: 0, 4: 1} and engine.world_size == 2
    engine = only([named(1, "ApiServer_0"), named(2, "VLLM_DP_Coordinator"), named(3, "VllmWorker-1"), named(9, "MainProcess")])
    assert ranks(engine) == {3: 1}
    assert {r.value for r in roles(engine).values()} == {"api", "coordinator", "worker", "launcher"}


def test_bare_logs_of_a_follower_complete_the_only_head() -> None:
    head_log = [named(1, "APIServer", "node0"), named(2, "EngineCore", "node0"), named(3, "Worker_TP0", "node0")]
    assert ranks(only([*head_log, named(9, "Worker_TP1", "node1")])) == {3: 0, 9: 1}
    # the same seat again, or a second head: nothing says to whom it belongs
    assert len(engines.identify([*head_log, named(9, "Worker_TP0", "node1")])) == 2
    other = [named(1, "APIServer", "x"), named(2, "EngineCore", "x")]
    assert len(engines.identify([*head_log, *other, named(9, "Worker_TP1", "node1")])) == 3


def test_ps_listing_without_arguments_split() -> None:
    infos = [ProcessInfo(pid=p.pid, ppid=p.ppid, title=p.title) for p in tp2()]
    engine = only(infos)
    assert ranks(engine) == {103: 0, 104: 1} and engine.ports == (8100,) and roles(engine)[101] is Role.HELPER


def test_neither_a_shell_nor_a_benchmark_is_a_server() -> None:
    assert (
        engines.identify(
            [process(1, 0, "bash -c vllm serve x"), process(2, 0, "/usr/bin/vllm bench serve"), process(3, 0, "vim Worker_TP0")]
        )
        == []
    )


def test_a_program_around_the_engine_is_its_front_end() -> None:
    engine = only([process(1, 0, "python3 offline.py"), process(2, 1, "VLLM::EngineCore"), process(3, 2, "VLLM::Worker_TP0")])
    assert roles(engine)[1] is Role.API


def test_execute_timeout_is_read_and_never_guessed() -> None:
    name = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
    assert only(tp2(env={name: "45"})).execute_timeout_s == 45
    assert only(tp2(env={"TZ": "UTC"})).execute_timeout_s == 300
    assert only(tp2()).execute_timeout_s is None


def test_output_rank_is_the_first_of_the_last_stage() -> None:
    compute = engines.profile("vllm").output_rank
    assert compute and [compute(2, 2), compute(4, 2), compute(8, 2)] == [0, 2, 6]


def test_unknown_profile_says_what_there_is() -> None:
    with pytest.raises(KeyError, match="vllm, sglang, trtllm, tgi, dynamo, torchrun, ray, python"):
        engines.profile("nope")


# torchrun and plain torch.distributed


def rank_env(rank: int, world: int = 2, **more: str) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "29500", **more}


def test_torchrun() -> None:
    engine = only(
        [
            process(1, 0, "/usr/bin/python3 /usr/bin/torchrun --nproc-per-node 2 serve.py"),
            process(2, 1, "/usr/bin/python3 serve.py", env=rank_env(0), packages={"torch": "2.9"}),
            process(3, 1, "/usr/bin/python3 serve.py", env=rank_env(1)),
            process(4, 3, "/usr/bin/python3 serve.py", env=rank_env(1)),
        ]
    )
    assert engine.kind == "torchrun" and ranks(engine) == {2: 0, 3: 1} and engine.world_size == 2 and engine.version == "2.9"
    assert roles(engine)[1] is Role.LAUNCHER and roles(engine)[4] is Role.HELPER, "a data loader inherits the rank"


def test_torchrun_nodes_merge_by_master_and_hidden_environment_leaves_ranks_open() -> None:
    agent = "/usr/bin/python3 -m torch.distributed.run serve.py"
    two = [
        process(1, 0, agent, node="a"),
        process(2, 1, "python3 serve.py", env=rank_env(0), node="a"),
        process(1, 0, agent, node="b"),
        process(3, 1, "python3 serve.py", env=rank_env(1), node="b"),
    ]
    assert only(two).nodes == ("a", "b")
    assert ranks(only([process(1, 0, agent), process(2, 1, "python3 serve.py")])) == {2: None}


def test_rank_environment_without_a_master_is_no_engine() -> None:
    assert engines.identify([process(2, 1, "python3 x.py", env={"RANK": "0", "WORLD_SIZE": "2"})]) == []
    assert ranks(only([process(2, 1, "python3 x.py", env=rank_env(0)), process(3, 1, "python3 x.py", env=rank_env(1))])) == {2: 0, 3: 1}


# any Python server


def test_generic_tree_with_ranks() -> None:
    engine = only(
        [
            process(1, 0, "python3 -m acme.front --port 9000", listening_ports=(9000,)),
            process(2, 1, "python3 -m acme.core"),
            process(3, 2, "python3 -m acme.rank --rank 0", listening_ports=(45001,)),
            process(4, 2, "python3 -m acme.rank --rank=1"),
            process(5, 2, "python3 -c from multiprocessing.resource_tracker import main;main(3)"),
        ]
    )
    assert engine.kind == "python" and ranks(engine) == {3: 0, 4: 1} and engine.ports == (9000,)
    assert {pid: role.value for pid, role in roles(engine).items()} == {1: "api", 2: "core", 3: "worker", 4: "worker", 5: "helper"}


def test_port_of_a_front_end_whose_sockets_cannot_be_seen() -> None:
    ranks_ = [process(2, 1, "python3 rank.py --rank 0"), process(3, 1, "python3 rank.py --rank 1")]
    assert only([process(1, 0, "python3 front.py --port 9000"), *ranks_]).ports == (9000,)
    assert only([process(1, 0, "python3 front.py --port 0", listening_ports=(41000,)), *ranks_]).ports == (41000,)


def test_two_engines_of_one_starter_stay_apart() -> None:
    def engine(base: int) -> list[ProcessInfo]:
        return [
            process(base, 1, f"python3 front.py {base}", listening_ports=(base,)),
            process(base + 1, base, "python3 rank.py --rank 0 --world-size 4"),
            process(base + 2, base, "python3 rank.py --rank 1 --world-size 4"),
        ]

    found = engines.identify([process(1, 0, "python3 tests.py"), *engine(100), *engine(200)])
    assert [(e.ports, sorted(ranks(e)), e.world_size) for e in found] == [((100,), [101, 102], 4), ((200,), [201, 202], 4)]


def test_a_named_process_is_an_engine_even_alone() -> None:
    engine = only([process(7, 1, "/bin/sleep 9", asked=True), process(8, 1, "/bin/sleep 9")])
    assert [p.pid for p in engine.processes] == [7] and engine.kind == "python"


def test_generic_ranks_from_titles() -> None:
    tree = [process(1, 0, "python3 serve.py", listening_ports=(9000,)), process(2, 1, "acme::worker-0"), process(3, 1, "acme::worker-1")]
    assert ranks(only(tree)) == {2: 0, 3: 1}
    assert ranks(only([named(5, "scheduler_TP0"), named(6, "scheduler_TP1")])) == {5: 0, 6: 1}


def test_unranked_server_counts_only_where_no_known_engine_runs() -> None:
    web = [process(1, 0, "python3 app.py", listening_ports=(80,)), process(2, 1, "python3 app.py"), process(3, 1, "python3 app.py")]
    assert only(web).kind == "python"
    assert ranks(only(web)) == {2: None, 3: None}
    assert [e.kind for e in engines.identify([*web, *tp2()])] == ["vllm"]


def test_lone_python_processes_are_no_engine() -> None:
    assert (
        engines.identify([process(1, 0, "python3 -m http.server", listening_ports=(8000,)), process(2, 0, "python3 tool.py --rank 3")])
        == []
    )


def test_kinds_restrict() -> None:
    assert engines.identify(tp2(), kinds=["torchrun"]) == []


# exposition and progress

SCRAPE = """# HELP vllm:generation_tokens_total Number of tokens.
vllm:generation_tokens_total{engine="0",model_name="a\\"}b"} 10.0
vllm:generation_tokens_created{engine="0"} 1.79e+09
vllm:iteration_tokens_total_count{engine="0"} 5.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0"} 77
vllm:num_requests_running{engine="0"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:request_success_total{engine="0",finished_reason="stop"} 2.0
vllm:request_success_total{engine="0",finished_reason="length"} 3.0
vllm:inter_token_latency_seconds_sum{engine="0"} 6.0
vllm:inter_token_latency_seconds_count{engine="0"} 2.0
vllm:kv_cache_usage_perc{engine="0"} NaN
vllm:generation_tokens_total{engine="1"} 4.0
garbage without value
{} 3
vllm:prompt_tokens_total{engine="0"} not-a-number
"""


def test_exposition_is_tolerant() -> None:
    samples = list(parse(SCRAPE))
    assert ("vllm:generation_tokens_total", {"engine": "0", "model_name": 'a"}b'}, 10.0) in samples
    assert not [name for name, _, _ in samples if name.endswith("_created") or "kv_cache" in name or "prompt" in name]
    assert list(parse('a{b="\\\\\\n\\""} 1 1700000000 # {trace="x"} 2')) == [("a", {"b": '\\\n"'}, 1.0)]
    assert list(parse("x" * 20000 + " 1\nok 1\n")) == [("ok", {}, 1.0)]
    assert [name for name, _, _ in parse("my_steps_total 1\nmissteps_total 1\n", ("steps_total",))] == ["my_steps_total"]


def test_progress_reading() -> None:
    names = engines.profile("vllm").progress
    first, second = read_progress(SCRAPE, names)
    assert first == ProgressReading(
        replica="0",
        counters={"steps": 5.0, "generation_tokens": 10.0, "requests": 5.0},
        running=1.0,
        waiting=0.0,
        mean_step_s=3.0,
        token_gaps=2.0,
    )
    assert second.replica == "1" and second.counters == {"generation_tokens": 4.0} and second.held is None
    assert held([first]) and not held([second])
    assert read_progress("", names) == []


def test_movement() -> None:
    def at(steps: float, replica: str = "0") -> ProgressReading:
        return ProgressReading(replica=replica, counters={"steps": steps})

    assert moved([at(1)], [at(2)]) is True
    assert moved([at(1)], [at(1)]) is False
    assert moved([at(1)], [at(0)]) is None, "a counter that falls belongs to another life of the engine"
    assert moved([at(1)], [at(1, "7")]) is None
    assert moved([], []) is None
    assert moved([at(1), at(1, "1")], [at(1), at(2, "1")]) is True


def test_a_large_scrape_costs_less_than_reading_it_naively() -> None:
    text = SCRAPE + "".join(f'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="{i}.0",model_name="m"}} {i}.0\n' for i in range(900))
    names = engines.profile("vllm").progress

    def cost(work: object) -> float:
        began = time.perf_counter()
        for _ in range(20):
            work()  # type: ignore[operator]
        return time.perf_counter() - began

    assert cost(lambda: read_progress(text, names)) < cost(lambda: list(parse(text)))


def test_hostile_exposition_costs_no_time() -> None:
    assert list(parse('a{b="' + "\\" * 16000)) == []
    assert list(parse("a{" + 'b="' * 5000)) == []
