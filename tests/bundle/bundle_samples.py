"""Lines with planted secrets, lines that a diagnosis needs unchanged, and the content of a small bundle."""

from __future__ import annotations

import json

from forensics.bundle import BundleWriter
from forensics.model import Attempt, Outcome

HF = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNm12345678"
GH = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
PW = "correct-horse-7"

# (line, what must be gone, what must stay)
CREDENTIALS: list[tuple[str, list[str], list[str]]] = [
    (f"INFO loading with {HF} from the hub", [HF], ["INFO loading with ", " from the hub"]),
    (f"fatal: could not read from https://{GH}@github.com/o/r.git", [GH], ["fatal: could not read from https://", "@github.com/o/r.git"]),
    ("key sk-proj-abcDEF1234567890abcDEF in use", ["sk-proj-abcDEF1234567890abcDEF"], ["key ", " in use"]),
    ("github_pat_11ABCDEFG0abcdefghijklmn_opqrstuvwxyz0123456789", ["github_pat_11ABCDEFG"], []),
    ("AKIAIOSFODNN7EXAMPLE used", ["AKIAIOSFODNN7EXAMPLE"], [" used"]),
    (f"creds AKIAIOSFODNN7EXAMPLE:{AWS} ok", [AWS, "AKIAIOSFODNN7"], ["creds ", " ok"]),
    (f"aws_secret_access_key = {AWS}", [AWS], ["aws_secret_access_key = "]),
    (f'{{"SecretAccessKey": "{AWS}", "Region": "eu"}}', [AWS], ["Region", "eu"]),
    (f"jwt {JWT} end", [JWT, JWT.split(".")[2]], ["jwt ", " end"]),
    (f"Authorization: Bearer {PW}", [PW], ["Authorization: Bearer "]),
    (f"'authorization': 'Bearer {PW}', 'x': 1", [PW], ["'authorization': 'Bearer ", "', 'x': 1"]),
    (f"headers=[(b'authorization', b'Bearer {PW}'), (b'host', b'x')]", [PW], ["(b'host', b'x')"]),
    (f"headers=[(b'x-api-key', b'{PW}'), (b'host', b'x')]", [PW], ["(b'host', b'x')"]),
    ("Authorization: Basic dXNlcjpodW50ZXIy", ["dXNlcjpodW50ZXIy"], ["Authorization: Basic "]),
    (f"curl -H 'Authorization: Bearer {PW}' http://127.0.0.1:8000/v1/models", [PW], ["http://127.0.0.1:8000/v1/models"]),
    (f"got bearer {PW} from client", [PW], ["got bearer ", " from client"]),
    (f"api_key={PW}, port=8000", [PW], ["api_key=", ", port=8000"]),
    (f"api_key='{PW}', port=8000", [PW], ["', port=8000"]),
    (f"non-default args: {{'api_key': ['{PW}', 'second-key-9'], 'port': 8000}}", [PW, "second-key-9"], ["'port': 8000"]),
    (f'{{"apiKey": "{PW}"}}', [PW], ["apiKey"]),
    (f"vllm serve m --api-key {PW} --port 8000", [PW], ["vllm serve m --api-key ", " --port 8000"]),
    (f"vllm serve m --api-key {PW} other-key --port 8000", [PW, "other-key"], [" --port 8000"]),
    (f"vllm serve m --api-key={PW} --port 8000", [PW], [" --port 8000"]),
    (f'cmd ["vllm", "serve", "--api-key", "{PW}", "--port", "8000"]', [PW], ['"--port", "8000"]']),
    (f"cmd ['vllm', '--hf-token', '{PW}', '--port', '8000']", [PW], ["'--port', '8000']"]),
    (f"vllm\0serve\0--api-key\0{PW}\0two words\0--port\x008000", [PW, "two words"], ["--port\x008000"]),
    (f"mysql --password {PW} -h db", [PW], [" -h db"]),
    (f"password = {PW}", [PW], ["password = "]),
    (f'password: "{PW}"', [PW], ["password: "]),
    ("password: hunter", ["hunter"], ["password: "]),
    ("DB_PASSWORD=hunter2", ["hunter2"], ["DB_PASSWORD="]),
    ("export HF_TOKEN=abc def ghi", ["abc", "ghi"], ["export HF_TOKEN="]),
    ("passphrase: correct horse battery staple", ["horse", "staple"], ["passphrase: "]),
    (f'client_secret => "{PW}"', [PW], ["client_secret => "]),
    (f"token='{PW}'", [PW], ["token="]),
    ("token=abc123def456", ["abc123def456"], ["token="]),
    (f"auth=('user', '{PW}')", [PW], ["auth="]),
    (f'\\"api_key\\": \\"{PW}\\", \\"port\\": 1', [PW], ["port"]),
    (f"postgresql://svc:{PW}@db.internal:5432/x", [PW], ["postgresql://svc:", "@db.internal:5432/x"]),
    ("redis://:p%40ss-word9@10.0.0.1/0", ["p%40ss"], ["@10.0.0.1/0"]),
    (
        "GET https://b.s3.amazonaws.com/k?X-Amz-Credential=AKIA1/2026&X-Amz-Signature=deadbeef01&X-Amz-Expires=60 200",
        ["deadbeef01", "AKIA1"],
        ["https://b.s3.amazonaws.com/k?", "X-Amz-Expires=60 200"],
    ),
    ("https://a.blob.core.windows.net/c?sv=2022&sr=b&sig=ab%2Fcd%3D&se=1", ["ab%2Fcd"], ["sv=2022&sr=b&sig=", "&se=1"]),
    ("AccountName=a;AccountKey=Zm9vYmFyYmF6cXV4==;EndpointSuffix=x", ["Zm9vYmFy"], ["AccountName=a;AccountKey=", ";EndpointSuffix=x"]),
    ("xoxb-123456789012-abcdefghijkl posted", ["xoxb-123456789012"], [" posted"]),
    ("AIzaSyA1234567890abcdefghijklmnopqrstu used", ["AIzaSyA123"], [" used"]),
    ("Cookie: session=abc; csrftoken=def", ["abc", "def"], ["Cookie: "]),
    ("X-Api-Key: plainkey", ["plainkey"], ["X-Api-Key: "]),
    ("glpat-abcdefghij0123456789 nvapi-ABCDEFGHIJKLMNOPQRSTUVWXYZ012345", ["glpat-abc", "nvapi-ABC"], []),
    ("nested error: Invalid token\\nhf_QwErTyUiOpAsDfGhJkLzXcVb", ["hf_QwEr"], ["nested error: "]),
    ("-----BEGIN RSA PRIVATE KEY-----\\nMIIEabc123\\n-----END RSA PRIVATE KEY-----", ["MIIEabc123"], ["BEGIN RSA", "END RSA"]),
]

CONTENT: list[tuple[str, list[str], list[str]]] = [
    (
        "(APIServer pid=7) INFO 01-02 03:04:05 [logger.py:39] Received request cmpl-0a1b2c3d4e5f6071-0: prompt: 'the patient said \\'no\\'', "
        "params: SamplingParams(n=1, max_tokens=16), prompt_token_ids: [101, 2023, 3793, 102], lora_request: None.",
        ["patient", "0a1b2c3d4e5f6071", "2023", "3793"],
        ["(APIServer pid=7) INFO 01-02 03:04:05 [logger.py:39] Received request cmpl-", "max_tokens=16", " x4]", "lora_request: None."],
    ),
    ('Request cmpl-x9: details: prompt: "it\'s \\"odd\\" weather", prompt_token_ids: None', ["weather", "odd"], ["prompt_token_ids: None"]),
    (
        "NewRequestData(req_id=cmpl-feedc0de00000001-0-12ab34cd,prompt_token_ids=[1, 2, 3],prompt_token_ids_len=3,num_computed_tokens=7,"
        "block_ids=([2, 3],))",
        ["feedc0de00000001", "1, 2, 3"],
        ["prompt_token_ids_len=3", "num_computed_tokens=7", "block_ids=([2, 3],)", "-0-12ab34cd", " x3]"],
    ),
    (
        "SchedulerOutput(num_scheduled_tokens={chatcmpl-user-mail@corp: 5}, finished_req_ids={'chatcmpl-user-mail@corp'}, total=5)",
        ["mail@corp"],
        ["num_scheduled_tokens={chatcmpl-", ": 5}", "total=5)"],
    ),
    ("request_id='trace of Bob', rid='9f8e7d6c5b4a', n=3", ["Bob", "9f8e7d6c5b4a"], ["n=3"]),
    ("X-Request-Id: customer-77-abc", ["customer-77"], ["X-Request-Id: "]),
    ("[(b'x-request-id', b'customer-77-abc'), (b'host', b'h')]", ["customer-77"], ["(b'host', b'h')"]),
    ("Added request 3f2504e0-4f89-11d3-9a0c-0305e82c3301.", ["3f2504e0-4f89"], ["Added request "]),
    ('body: {"model": "m", "messages": [{"role": "user", "content": "my diagnosis"}], "n": 2}', ["diagnosis"], ['"model": "m"', '"n": 2']),
    ('{"model":"m","prompt":["first secret text","second one"],"max_tokens":5}', ["first secret", "second one"], ["max_tokens", "5"]),
    ('{"input":[[1,2,3],[4,5]],"model":"m"}', ["[1,2,3]"], ["x5", "model"]),
    (
        "GenerateReqInput(rid='0123456789abcdef', text='tell me all', input_ids=[9, 8, 7], image_data=None)",
        ["tell me", "9, 8", "0123456789abcdef"],
        ["image_data=None"],
    ),
    (
        "out={'text': 'a long answer', 'output_ids': [5, 6], 'meta_info': {'finish_reason': 'stop'}}",
        ["long answer", "5, 6"],
        ["'finish_reason': 'stop'"],
    ),
    ("StructuredOutputsParams(json={'type': 'object', 'properties': {'iban': {}}}, regex=None)", ["iban"], ["regex=None"]),
    ('guided_json=\'{"title": "Claim"}\', n=1', ["Claim"], ["n=1"]),
    ("guided_regex='[A-Z]{3}-secret', n=1", ["[A-Z]{3}"], ["n=1"]),
    ('failed to compile grammar: root ::= "salary" digits', ["salary"], ["failed to compile grammar: "]),
    ("structured_outputs=StructuredOutputsParams(choice=['merger', 'buyout']), n=1", ["merger"], ["n=1"]),
    (
        "1 validation error: messages.0 [type=string_type, input_value={'role': 'user', 'content':...ecret plan'}, input_type=dict]",
        ["ecret plan"],
        ["input_type=dict]"],
    ),
    ("received prompt: tell me about the layoffs", ["layoffs"], ["received prompt: "]),
    (
        '{"log":"(EngineCore pid=9) ERROR x: prompt: \'it\\\\\'s our plan\', n=1\\n","stream":"stdout"}',
        ["our plan"],
        ["(EngineCore pid=9) ERROR", "stdout"],
    ),
]

ENGINE_LOG = r"""
(APIServer pid=28770) INFO 11-30 14:17:01 [api_utils.py:286] non-default args: {'model_tag': '/models/tiny', 'host': '127.0.0.1', 'port': 8000, 'api_key': None, 'tokenizer_mode': 'auto', 'max_num_batched_tokens': 2048, 'tensor_parallel_size': 2}
(EngineCore pid=29245) INFO 11-30 14:17:05 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/tiny', speculative_config=None, tokenizer='/models/tiny', skip_tokenizer_init=False, tokenizer_revision=None, trust_remote_code=False, dtype=torch.bfloat16, max_seq_len=2048, structured_outputs_config=StructuredOutputsConfig(backend='auto', disable_any_whitespace=False), seed=0, served_model_name=/models/tiny, compilation_config={'mode': 3, 'custom_ops': ['none'], 'splitting_ops': ['vllm::unified_attention'], 'cudagraph_capture_sizes': [1, 2, 4, 8, 16, 24, 32, 40]}
(Worker_TP1 pid=29395) INFO 11-30 14:17:06 [parallel_state.py:1906] world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:51515 backend=gloo
(Worker_TP1 pid=29395) INFO 11-30 14:17:06 [parallel_state.py:2350] rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 1, EP rank N/A
(EngineCore pid=29245) INFO 11-30 14:17:30 [kv_cache_utils.py:2327] GPU KV cache size: 1,245,184 tokens
(APIServer pid=28770) INFO:     127.0.0.1:40212 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=28770) INFO 11-30 14:18:00 [loggers.py:310] Engine 000: Avg prompt throughput: 3.2 tokens/s, Avg generation throughput: 81.5 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.8%, Prefix cache hit rate: 0.0%
(EngineCore pid=29245) INFO 11-30 14:19:09 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).
(Worker_TP1 pid=29395) ERROR 11-30 14:18:09 [multiproc_executor.py:1063] WorkerProc hit an exception.
(Worker_TP1 pid=29395) ERROR 11-30 14:18:09 [multiproc_executor.py:1063] Traceback (most recent call last):
(Worker_TP1 pid=29395) ERROR 11-30 14:18:09 [multiproc_executor.py:1063]   File "/venv/lib/python3.11/site-packages/vllm/v1/executor/multiproc_executor.py", line 1058, in worker_busy_loop
(Worker_TP1 pid=29395) ERROR 11-30 14:18:09 [multiproc_executor.py:1063]     output = func(*args, **kwargs, prompt=prompt, messages=[{"role": r}], token=tok(x))
(Worker_TP1 pid=29395) ERROR 11-30 14:18:09 [multiproc_executor.py:1063]              ^^^^^^^^^^^^^^^^^^^^^
(Worker_TP1 pid=29395) ERROR 11-30 14:18:09 [multiproc_executor.py:1063] RuntimeError: injected fault in forward (rank 1)
(EngineCore pid=29245) ERROR 11-30 14:18:09 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=29245) ERROR 11-30 14:18:09 [core.py:1512] TimeoutError: RPC call to execute_model timed out.
(EngineCore pid=29245) ERROR 11-30 14:18:09 [dump_input.py:81] Dumping scheduler stats: SchedulerStats(num_running_reqs=8, num_waiting_reqs=0, kv_cache_usage=0.008, prefix_cache_stats=PrefixCacheStats(reset=False, requests=0, queries=0, hits=0), spec_decoding_stats=None)
(EngineCore pid=1) ERROR 01-02 03:04:05 [multiproc_executor.py:315] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.
(APIServer pid=1) ERROR 01-02 03:04:05 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
(Worker pid=7) INFO 01-02 03:04:05 [weight_utils.py:1] Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.61s/it]
Processed prompts:  50%|█████     | 1/2 [00:00<00:00, 10.2it/s, est. speed input: 61.20 toks/s, output: 163.19 toks/s]
[rank1]:[E901 10:12:00.123 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.
node1:4243:4301 [1] NCCL INFO comm 0x55d0c0ffee00 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0 commId 0xdeadbeefcafef00d
[2026-09-01 10:00:00] Decode batch. #running-req: 3, #token: 1234, token usage: 0.05, gen throughput (token/s): 101.2, #queue-req: 0
[09/01/2026-10:00:00] [TRT-LLM] [RANK 0] [I] iter = 5559, host_step_time = 50.5ms, num_scheduled_requests: 3, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 3}
ValueError: The decoder prompt (length 5000) is longer than the maximum model length of 2048. Make sure that `max_model_len` is no smaller than the number of text tokens.
requests                  2.34.2rc1
100 requests in 5s, request 12 of 40, request rate0: 3
KeyError: 'layers.0.mlp.down_proj.weight'
json.decoder.JSONDecodeError: unexpected token: ',' at line 3
open /etc/passwd: permission denied
INFO: eos_token='</s>', pad_token: '<pad>', bos_token_id=1, time per output token: 12.5 ms, max_tokens=16, stop=[], stop_token_ids=[], bad_words=[]
SamplingParams(n=1, presence_penalty=0.0, temperature=1.0, stop=[], max_tokens=2000, prompt_logprobs=None, structured_outputs=None, extra_args=None)
new_token_ids_lens=[],all_token_ids_lens={},num_computed_tokens=[1791, 1790, 1790],num_output_tokens=[1784, 1783],new_block_ids=[None, ([4, 5],)],prompt_token_ids_len=8,
POST http://127.0.0.1:8000/v1/chat/completions took 1.2s; GET https://huggingface.co/api/models/org/name 200
""".strip().split("\n")

KERNEL_AND_PROC = r"""
[12345.678901] NVRM: Xid (PCI:0000:17:00): 79, pid=4243, name=python3, GPU has fallen off the bus.
[12345.700000] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=python3,pid=4243,uid=1000
6,1234,98765432,-;audit: type=1400 audit(1.2:3): apparmor="DENIED" operation="ptrace" profile="docker-default" pid=77 comm="py-spy"
Name:	VLLM::Worker_TP1
State:	T (stopped)
Speculation_Store_Bypass:	thread vulnerable
NSpid:	4243	17
voluntary_ctxt_switches:	1234
0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.scope
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 123456 1 0000000000000000 100 0 0 10 0
7f1c2c000000-7f1c2c021000 rw-s 00000000 00:19 1234    /dev/shm/psm_1a2b3c4d
GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, NVIDIA H100 80GB HBM3, 100 %, 131.05 W
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:prompt_tokens_total{engine="0",model_name="/models/tiny"} 1024.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="/models/tiny"} 512.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="/models/tiny"} 3.0
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 16.0
""".strip().split("\n")

HEAD = {"node": "node7", "boot_id": "b-1", "incident": "INC-7", "started_ns": 5, "utc_offset_s": 7200}
ORDER = ["stacks", "queues", "process", "kernel", "rpclogs"]


def fill(writer: BundleWriter, logs: int = 6) -> None:
    """Evidence of several collectors, written in another order than that of their volatility."""
    writer.add("discovery/processes.json", "process-table", json.dumps([{"pid": 7, "title": "VLLM::EngineCore"}]), collector="discovery")
    for number in range(logs):
        text = "".join(f"(Worker_TP{number} pid={number}) INFO 01-02 03:04:05 [x.py:{i}] step {i * 7919 % 10007}\n" for i in range(400))
        writer.add(f"rpclogs/node-{number}.log", "log", text, collector="rpclogs", pid=number, source=f"/var/log/{number}.log")
    for sample in (1, 2):
        stack = json.dumps([{"pid": 7, "thread_id": sample, "frames": [{"name": f"f{i}", "line": i} for i in range(200)]}])
        writer.add(
            f"stacks/pid-7.{sample}.json", "pyspy-json", stack, collector="stacks", pid=7, sample=sample, at_ns=1_700_000_000_000_000_000
        )
    writer.add("kernel/dmesg.txt", "kernel-log", "[1.0] quiet\n", collector="kernel", truncated=True)
    writer.attempt(Attempt(collector="stacks", target="pid 7", outcome=Outcome.OK, evidence=("stacks/pid-7.1.json",)))
    writer.attempt(Attempt(collector="gpu", target="node", outcome=Outcome.ABSENT, reason="no NVML"))
