"""A limit was raised: whatever stands still is noticed that much later, and no sooner cured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import ConfigValue, EvidenceRef, Finding, FindingRole, Role

DEFAULTS: dict[str, float] = {
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": 300,
    "VLLM_ENGINE_ITERATION_TIMEOUT_S": 60,
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": 480,
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": 480,
    "RAY_CGRAPH_GET_TIMEOUT": 300,
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": 600,
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": 300,
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": 300,
    "TLLM_HANG_DETECTOR_THRESHOLD": 300,
    "WATCHDOG_TIMEOUT": 300,
}
"""Limits of work under way, in seconds, by name in upper case; the greatest default of the versions that have them."""
_ARGUMENT = re.compile(r"\b(watchdog[_-]timeout)['\"]?\s*[=:]\s*([\d.]+)")


def evaluate(view: View) -> Iterator[Finding]:
    if view.stall is None and not view.events("timeout", "hang"):
        return
    raised = {name: (value, ref) for name, value, ref in _values(view) if value > DEFAULTS[name]}
    for name, (value, ref) in raised.items():
        yield view.finding(
            "time-limit-raised",
            grade(observed=True),
            title=f"{name.lower() if name == 'WATCHDOG_TIMEOUT' else name} is {duration(value)}, its default is {duration(DEFAULTS[name])}",
            because=[ref],
            role=FindingRole.CONTEXT,
            does_not_show="that the limit did harm: it only says when a standstill is noticed, not whether there is one",
        )


def _values(view: View) -> Iterator[tuple[str, float, EvidenceRef]]:
    owned = {n for e in view.case.engines for n in e.nodes}
    for config in view.case.of(ConfigValue):
        # a file of settings that names no node speaks of all of them
        if config.node in view.nodes or config.node not in owned:
            value = _seconds(config.value)
            if config.name.upper() in DEFAULTS and value is not None:
                yield config.name.upper(), value, config.ref
    if view.engine.execute_timeout_s:
        fronts = [s for p in view.engine.processes if p.role in (Role.API, Role.LAUNCHER) and (s := view.state_of(p))]
        if fronts:
            yield "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", view.engine.execute_timeout_s, fronts[0].ref
    for hit in view.events("start", "core-start"):
        for m in _ARGUMENT.finditer(" ".join((hit.text, *hit.fields.values()))):
            if (value := _seconds(m[2])) is not None:
                yield "WATCHDOG_TIMEOUT", value, hit.ref


def _seconds(text: str) -> float | None:
    try:
        value = float(text.strip("'\" "))
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


TEXTS = {
    "time-limit-raised": Text(
        says="A limit on work under way is above its default. For a deadlock that only delays the symptom, and the capture with it.",
        establishes="The limit's value in the command line, environment or log, and something that stood still.",
        next_steps=("put it back: a higher limit delays the line that names the standstill, and cures nothing",),
    ),
}

RULE = Rule(
    name="time_limits",
    texts=TEXTS,
    about="A limit on work under way is above its default, and something stood still.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Long limits are legitimate where single steps are long; the finding is a circumstance, never a cause.",
    references=("vllm envs.py", "SGLang server_args.py watchdog_timeout", "torch ProcessGroupNCCL.hpp"),
)
