"""Engines beside vLLM in process tables: titles, ranks, families; and what their start-up lines state."""

from __future__ import annotations

from forensics.engines import identify, profile
from forensics.engines.sglang import rank_at
from forensics.model import ProcessInfo, Role
from tests.test_engines import only, process, ranks, roles

SERVE = "python3 -m sglang.launch_server --model-path /m --tp-size 2 --port 31000"


def test_sglang_server_with_two_ranks() -> None:
    engine = only(
        [
            process(10, 1, SERVE),
            process(11, 10, "sglang::scheduler_TP0"),
            process(12, 10, "sglang::scheduler_TP1"),
            process(13, 10, "sglang::detokenizer"),
        ]
    )
    assert (engine.kind, engine.world_size, engine.ports) == ("sglang", 2, (31000,))
    assert ranks(engine) == {11: 0, 12: 1}
    assert roles(engine)[10] is Role.API and roles(engine)[13] is Role.HELPER


def test_sglang_of_one_gpu_has_no_number_in_its_title() -> None:
    engine = only([process(10, 1, "python3 -m sglang.launch_server --model-path /m"), process(11, 10, "sglang::scheduler")])
    assert ranks(engine) == {11: 0}
    assert engine.world_size == 1


def test_ranks_of_pipeline_stages_need_the_size_of_a_stage() -> None:
    assert (found := rank_at("PP1 TP1", 4)) and (found.rank, found.pp, found.tp) == (5, 1, 1)
    assert (found := rank_at("PP1 TP1", None)) and found.rank is None
    assert (found := rank_at("DP1 MOE_DP0 TP3 EP3", None)) and (found.rank, found.dp, found.ep) == (3, 1, 3)
    assert rank_at("", 4) is None


def test_two_nodes_of_sglang_are_one_engine_by_their_rendezvous() -> None:
    line = "python3 -m sglang.launch_server --model-path /m --tp-size 4 --nnodes 2 --dist-init-addr 192.0.2.1:5000 --node-rank "
    engine = only(
        [
            process(10, 1, line + "0", node="a"),
            *(process(11 + r, 10, f"sglang::scheduler_TP{r}", node="a") for r in (0, 1)),
            process(10, 1, line + "1", node="b"),
            *(process(11 + r, 10, f"sglang::scheduler_TP{r}", node="b") for r in (2, 3)),
        ]
    )
    assert engine.nodes == ("a", "b")
    assert engine.world_size == 4


def test_mpi_ranks_of_tensorrt_llm() -> None:
    mpi = {"OMPI_COMM_WORLD_SIZE": "2"}
    engine = only(
        [
            process(10, 1, "/usr/bin/python3 /usr/local/bin/trtllm-serve /m --port 8123"),
            process(20, 10, "python3 -R -m mpi4py.futures.server", env=mpi | {"OMPI_COMM_WORLD_RANK": "0"}),
            process(21, 10, "python3 -R -m mpi4py.futures.server", env=mpi | {"OMPI_COMM_WORLD_RANK": "1"}),
        ]
    )
    assert (engine.kind, engine.ports) == ("trtllm", (8123,))
    assert ranks(engine) == {20: 0, 21: 1}


def test_a_raylet_is_no_engine_of_its_own() -> None:
    table = [
        process(10, 1, "/opt/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp/x"),
        ProcessInfo(pid=11, ppid=10, comm="gcs_server"),
    ]
    assert [e.kind for e in identify(table)] == []


def test_the_start_up_line_of_sglang_states_its_shape() -> None:
    read = profile("sglang").stated
    assert read is not None
    args = (
        "model_path='/m', tp_size=8, dp_size=4, pp_size=2, enable_dp_attention=True, dist_init_addr='192.0.2.1:5000', nnodes=2, node_rank=1"
    )
    found = read({"args": args})
    assert (found.world, found.tp, found.dp, found.nodes, found.node_rank) == (16, 8, 1, 2, 1)
    assert found.together
    assert read({"args": "model_path='/m', tp_size=2, dist_init_addr=None, nnodes=1, node_rank=0"}).together == ""
    assert read({"args": "tp_size=99999999999"}).world == 1


def test_command_lines_state_a_shape_in_each_engine_s_own_words() -> None:
    def told(kind: str, line: str, env: dict[str, str] | None = None) -> tuple[int | None, int | None, int | None, int | None]:
        read = profile(kind).commanded
        assert read is not None
        said = read(process(10, 1, line, env=env or {}))
        return (said.world, said.dp, said.nodes, said.node_rank) if said else (None, None, None, None)

    serve = "/usr/bin/python3 /usr/bin/vllm serve /m --tensor-parallel-size 4 "
    assert told("vllm", serve + "--pipeline-parallel-size 2 --nnodes 2 --node-rank 1") == (8, None, 2, 1)
    assert told("vllm", serve) == (4, None, 1, 0)
    assert told("vllm", serve + "--distributed-executor-backend ray") == (4, None, None, None)
    spread = serve + "--data-parallel-size 8 --data-parallel-size-local 4 --data-parallel-start-rank 4 --headless"
    assert told("vllm", spread) == (4, 8, 2, 1)
    assert told("vllm", serve + "--config /etc/vllm.yaml")[0] is None
    assert told("vllm", "/usr/bin/python3 /usr/bin/vllm bench serve") == (None, None, None, None)
    assert told("sglang", SERVE + " --nnodes 2 --node-rank 1 --dp 2") == (2, 2, 2, 1)
    assert told("sglang", SERVE) == (2, 1, 1, 0)
    assert told("trtllm", "mpirun -n 8 --allow-run-as-root trtllm-llmapi-launch trtllm-serve /m --tp_size 8") == (8, None, None, None)
    assert told("trtllm", "srun --mpi=pmix -N 2 --ntasks 16 trtllm-llmapi-launch trtllm-serve /m") == (16, None, 2, None)
    assert told("trtllm", "/usr/bin/python3 /usr/bin/trtllm-serve /m --tp_size 4 --pp_size 2") == (8, None, None, None)
    assert told("trtllm", "/usr/bin/python3 /usr/bin/trtllm-serve /m --extra_llm_api_options /x.yaml") == (None, None, None, None)
    assert told("torchrun", "/usr/bin/torchrun --nnodes=2 --nproc-per-node=4 --node-rank=1 train.py") == (8, None, 2, 1)
    assert told("torchrun", "/usr/bin/torchrun --nnodes=1:4 --nproc-per-node=4 train.py") == (None, None, None, None)
    assert told("torchrun", "python3 train.py", {"RANK": "3", "WORLD_SIZE": "16"}) == (16, None, None, None)
    assert told("python", "python3 worker.py --rank 1 --world-size 3") == (3, None, None, None)


def test_the_start_up_lines_of_vllm_state_a_shape() -> None:
    read = profile("vllm").stated
    assert read is not None
    front = read({"args": "{'model_tag': '/m', 'tensor_parallel_size': 2, 'nnodes': 2, 'node_rank': 1}"})
    assert (front.world, front.nodes, front.node_rank) == (2, 2, 1)
    core = read({"config": "model='/m', tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=1, nnodes=1"})
    assert (core.world, core.dp, core.nodes) == (4, None, None)


def test_what_starts_an_mpi_world_is_its_launcher() -> None:
    table = [
        process(9, 1, "mpirun -n 2 trtllm-llmapi-launch trtllm-serve /m"),
        process(10, 9, "/usr/bin/python3 /usr/local/bin/trtllm-serve /m", env={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}),
        process(11, 9, "/usr/bin/python3 /usr/local/bin/trtllm-serve /m", env={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}),
    ]
    engine = only(table)
    assert roles(engine)[9] is Role.LAUNCHER and engine.world_size == 2
