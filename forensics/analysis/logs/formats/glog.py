"""Google's log form without a bracket: PyTorch's Python side, older Ray processes, Kubernetes' own."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled, stamped


def _take(out: Peeled, m: re.Match[str]) -> None:
    if m["epoch"]:
        stamped(FORMAT, out, m["epoch"], "epoch")
    if m["rank"] or m["at"].endswith(".py") or ".py:" in m["at"] or "ProcessGroup" in m["at"]:
        out.engine = "torch"


FORMAT = Format(
    name="glog",
    wrapper=False,
    starts="IWEFV[",
    pattern=re.compile(
        r"(?:\[rank(?P<rank>\d{1,6})\]:)?(?P<level>[IWEFV])"
        r"(?:(?P<time>(?:\d{3,4}|20\d{6}) \d\d:\d\d:\d\d\.\d{3,9})|0000 00:00:(?P<epoch>\d{10}\.\d{1,9}))"
        r" {1,8}(?P<pid>\d{1,9})(?: \d{1,9})? (?P<at>[\w./\-]{1,200}:\d{1,6})\] ?"
    ),
    stamp="glog",
    take=_take,
    order=20,
    samples=(
        "E1130 14:19:43.168000 6151 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 1 (pid: 123)",
        "[rank0]:W1130 14:19:43.168000 6151 torch/_dynamo/convert_frame.py:906] [0/8] hit limit",
        "I1130 12:00:00.123456 123 123 gcs_server.cc:12] started",
        "I20240227 08:25:18.989490 35588 grpc_server.cc:2495] Started GRPCInferenceService at 0.0.0.0:8001",
        "W0000 00:00:1764504000.123456     123 cuda_dnn.cc:12] x",
        "E1130 12:00:00.123456       1 leaderelection.go:332] error",
    ),
    negatives=("E1130 14:19:43 no fraction", "E1130 14:19:43.168000 x", "Error 14:19:43.168000 6151 a.py:1] x"),
)
