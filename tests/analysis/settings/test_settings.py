"""The configuration in force: where it is read, whose word counts, and what is called a disagreement."""

from __future__ import annotations

import json

import pytest

from forensics.analysis.settings import of_engine
from forensics.analysis.settings.pairs import pairs
from forensics.engines import options
from forensics.model import ProcessInfo, Report, Setting
from tests.analysis.scene import API, CORE, IN_STEP, WORKER


def config(told) -> dict[str, Setting]:
    return settings_of(told.report)


def settings_of(report: Report) -> dict[str, Setting]:
    return {s.name: s for s in report.engines[0].config}


def live(s, pid: int, **values) -> None:
    s.objects.setdefault(pid, {}).setdefault("values", []).extend(
        {"name": n, "expr": n, "type": "x", "value": v} for n, v in values.items()
    )


# ---- reading


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{'model_tag': '/m', 'tensor_parallel_size': 2, 'api': None}", {"model_tag": "'/m'", "tensor_parallel_size": "2", "api": "None"}),
        ("{'a': [1, 2], 'b': {'c': 1, 'd': 'x, y'}, 'e': True}", {"a": "[1, 2]", "b": "{'c': 1, 'd': 'x, y'}", "e": "True"}),
        ("Namespace(subparser='serve', tp=2)", {"subparser": "'serve'", "tp": "2"}),
        ("model_path='/m', tp_size=8, nnodes=2)", {"model_path": "'/m'", "tp_size": "8", "nnodes": "2"}),
        ("model='/m', cfg=Config(a=1, b=(2, 3)), seed=0", {"model": "'/m'", "cfg": "Config(a=1, b=(2, 3))", "seed": "0"}),
        # a line that was cut: the value in the middle of which it ends is not told
        ("{'a': 1, 'b': 'lon", {"a": "1"}),
        ("{'a': 1, 'b': 23", {"a": "1"}),
        ("model='/m', cfg=Config(a=1, b=", {"model": "'/m'"}),
        ("{'it\\'s': 1}", {}),
        ("", {}),
        ("no names here", {}),
    ],
)
def test_names_and_values_of_a_printed_configuration(text, found):
    assert dict(pairs(text)) == found


def test_hostile_text_ends():
    for text in ("(" * 100_000, "a=" * 50_000, "'" * 100_001, "a=1," * 50_000, "{'a': " + "[" * 50_000):
        assert len(list(pairs(text))) <= 1000


def info(*argv: str, listed: bool = False) -> ProcessInfo:
    return ProcessInfo(pid=1, title=" ".join(argv)) if listed else ProcessInfo(pid=1, argv=argv)


def test_options_as_a_program_reads_them():
    line = ("python3", "/usr/bin/vllm", "serve", "/m", "-tp", "2", "--max-model-len=4096", "--enforce-eager", "--no-enable-prefix-caching")
    assert options(info(*line, "--served-model-name", "a", "b", "--tensor-parallel-size", "4")) == [
        ("tp", "2"),
        ("max_model_len", "4096"),
        ("enforce_eager", "true"),
        ("enable_prefix_caching", "false"),
        ("served_model_name", "a b"),
        ("tensor_parallel_size", "4"),
    ]
    # of a listing that may be cut anywhere the last word is not trusted
    assert dict(options(info("vllm", "serve", "/m", "--seed", "1", "--max-model-len", "40", listed=True))) == {"seed": "1"}
    assert options(info("VLLM::EngineCore")) == []


# ---- in force


def test_the_live_object_counts_before_the_log_and_the_log_before_the_command_line(scene, tell):
    s = scene()
    s.log(
        -105, "EngineCore", CORE, "INFO", "Initializing a V1 LLM engine (v0.32.0) with config: model='/m', tensor_parallel_size=2, seed=7"
    )
    live(s, CORE, max_num_seqs=64)
    found = config(tell(s))
    assert (found["max_num_seqs"].value, found["max_num_seqs"].via) == ("64", "live object")
    assert (found["seed"].value, found["seed"].via) == ("7", "log")
    assert (found["tensor_parallel_size"].value, found["tensor_parallel_size"].via, found["tensor_parallel_size"].stated) == (
        "2",
        "log",
        True,
    )
    assert {(r.via, r.asked) for r in found["tensor_parallel_size"].readings} == {("log", False), ("log", True), ("command line", True)}
    assert not any(x.disagreement for x in found.values())
    read = found["max_num_seqs"].readings[0]
    assert read.node == s.node and read.pids == (CORE,) and read.ref.source.startswith("objects/")


def test_what_runs_otherwise_than_it_was_asked_for_is_told_with_both_sides(scene, tell):
    s = scene()
    s.log(-119, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2, 'async_scheduling': True}")
    live(s, CORE, async_scheduling=False)
    told = tell(s)
    found = config(told)["async_scheduling"]
    assert (found.value, found.via) == ("false", "live object")
    assert "says false" in found.disagreement and "says true" in found.disagreement
    assert len(found.disagreeing) == 2 and len({r.source for r in found.disagreeing}) == 2
    finding = told.by_id["config-disagreement"]
    assert finding.grade.value == "established" and finding.role.value == "context" and finding.because == found.disagreeing
    assert told.root == (None, None) and told.state == "healthy"


def test_ranks_that_run_with_different_values_have_no_value_in_force(scene, tell):
    s = scene()
    live(s, WORKER, async_scheduling=True)
    live(s, WORKER + 1, async_scheduling=False)
    told = tell(s)
    found = config(told)["async_scheduling"]
    assert found.value == "" and found.via == "live object"
    assert "rank 0" in found.disagreement and "rank 1" in found.disagreement
    assert {r.ranks for r in found.readings if r.via == "live object"} == {(0,), (1,)}
    assert told.by_id["config-disagreement"].severity.value == "warning"


def test_a_setting_that_one_place_states_cannot_be_compared(scene, tell):
    told = tell(scene(served=False))
    assert config(told)["tensor_parallel_size"].via == "command line"
    assert told.rule("config_disagreement") == "INCONCLUSIVE" and "config-disagreement" not in told.by_id


def test_a_value_that_was_torn_is_not_told(scene, tell):
    s = scene()
    s.objects[CORE] = {"values": [{"name": "max_num_seqs", "expr": "x", "type": "int", "value": 3, "torn": True}]}
    assert "max_num_seqs" not in config(tell(s))


def test_counts_of_the_moment_are_no_settings(scene, tell):
    s = scene()
    live(s, CORE, running_requests=4, step_counter=99)
    assert not {"running_requests", "step_counter"} & set(config(tell(s)))


def env(s, pid: int, text: str) -> None:
    s._add("environ", f"environ/pid-{pid}.txt", "environ", text, pid=pid)


def test_environments_that_differ_among_nodes_or_ranks_are_told(scene, tell):
    s = scene()
    env(s, WORKER, "NCCL_ALGO=Ring\0CUDA_VISIBLE_DEVICES=0\0PATH=/bin\0")
    env(s, WORKER + 1, "NCCL_ALGO=Tree\0CUDA_VISIBLE_DEVICES=1\0PATH=/usr/bin\0")
    found = config(tell(s))
    assert "Ring" in found["NCCL_ALGO"].disagreement and "Tree" in found["NCCL_ALGO"].disagreement
    assert not found["CUDA_VISIBLE_DEVICES"].disagreement
    assert "PATH" not in found


def test_a_word_that_stands_for_another_is_no_disagreement(scene, tell):
    s = scene()
    s.log(-119, "APIServer", API, "INFO", "non-default args: {'dtype': 'auto', 'max_model_len': '32k', 'served_model_name': ['a']}")
    s.log(-105, "EngineCore", CORE, "INFO", "Initializing a V1 LLM engine (v0.32.0) with config: dtype=torch.bfloat16, max_seq_len=32768")
    told = tell(s)
    assert config(told)["max_model_len"].value == "32768"
    assert "config-disagreement" not in told.by_id


def test_replicas_that_run_as_if_they_were_alone_contradict_nobody(scene, tell):
    s = scene()
    s.log(-119, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2, 'data_parallel_size': 4}")
    s.log(
        -105, "EngineCore", CORE, "INFO", "Initializing a V1 LLM engine (v0.32.0) with config: tensor_parallel_size=2, data_parallel_size=1"
    )
    told = tell(s)
    found = config(told)["data_parallel_size"]
    assert (found.value, found.disagreement) == ("4", "")
    assert {r.value for r in found.readings} == {"4", "1"}
    assert "config-disagreement" not in told.by_id


# ---- risks


def test_a_raised_limit_and_an_api_that_outlives_its_engine_are_named(scene, tell):
    s = scene()
    env(s, API, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800\0VLLM_KEEP_ALIVE_ON_ENGINE_DEATH=1\0VLLM_SERVER_DEV_MODE=0\0NCCL_RAS_ENABLE=1\0")
    told = tell(s)
    found = config(told)
    assert "30 min is above the default of 5 min" in found["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"].risk
    assert found["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"].default == "300"
    assert "last values" in found["VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"].risk
    assert not found["VLLM_SERVER_DEV_MODE"].risk and not found["NCCL_RAS_ENABLE"].risk
    assert told.state == "healthy"  # a risk is no finding


def test_the_live_limit_counts_before_the_environment(scene, tell):
    s = scene()
    env(s, API, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800\0")
    live(s, CORE, execute_timeout_s="45")
    found = config(tell(s))["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"]
    assert (found.value, found.via, found.risk) == ("45", "live object", "")
    assert "1800" in found.disagreement


SGLANG = "[2026-09-01 09:58:00] server_args=ServerArgs(model_path='/m', tp_size=2, dp_size=1, watchdog_timeout={w}, api_key=None)\n"


def test_arguments_of_sglang_with_a_raised_watchdog(tmp_path):
    from forensics.analysis import analyze

    (tmp_path / "node0.log").write_text(SGLANG.format(w=3000))
    found = settings_of(analyze([tmp_path]))
    assert found["tp_size"].value == "2" and "api_key" not in found
    assert "50 min is above the default of 5 min" in found["watchdog_timeout"].risk
    (tmp_path / "node0.log").write_text(SGLANG.format(w=300))
    assert not settings_of(analyze([tmp_path]))["watchdog_timeout"].risk


def test_every_name_of_the_environment_that_is_judged_is_captured():
    from forensics.analysis.settings.risks import DEFAULTS, LIMITS, SWITCHES
    from forensics.engines import ENV_ALLOW

    for name in (*DEFAULTS, *LIMITS, *SWITCHES):
        assert name in ENV_ALLOW or name.lower() in ("watchdog_timeout", "ray_cgraph_get_timeout"), name


# ---- what must not be told


def test_secrets_of_a_mailed_log_are_not_told(scene, tell):
    s = scene()
    secret = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    s.log(-119, "APIServer", API, "INFO", f"non-default args: {{'model_tag': '/m', 'api_key': ['{secret}'], 'hf_token': 'hf_{'x' * 34}'}}")
    found = config(tell(s))
    assert not {"api_key", "hf_token"} & set(found)
    assert secret not in json.dumps([r.ref.quote for x in found.values() for r in x.readings])


def test_of_an_earlier_life_only_the_log_speaks(scene):
    from forensics.analysis import ingest, topology
    from forensics.analysis.view import View

    s = scene()
    s.hang(1, IN_STEP)
    case = ingest.read_inputs([s.bundle()])
    topology.build(case)
    now = View(case, case.engines[0])
    assert of_engine(now)
    before = View(case, case.engines[0], life=now.life - 1)
    assert before.past and {r.via for x in of_engine(before) for r in x.readings} <= {"log"}
