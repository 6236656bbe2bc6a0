"""The name of a call that vLLM sent through a ring (v1/executor/multiproc_executor.py), taken from its pickle without unpickling.

The broadcast carries (method, args, kwargs, output_rank): a text (or a pickled function), a tuple, a dict, None or a rank. An answer
carries (ResponseStatus, result). The same rings carry whatever else the groups of vLLM exchange, and a word of it may be anybody's
prompt or password: only the names that are listed here leave the node as they stand.
"""

from __future__ import annotations

import pickletools


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OTHER = "(other)"
"""Stands for a call of a name that is not listed: a method of an extension, or a text that merely looks like a call."""
RESPONSE = "ResponseStatus"
METHODS = _words(
    # worker_base.py, gpu_worker.py and those who call collective_rpc; then what earlier versions of v1 had besides
    "execute_model sample_tokens execute_dummy_batch take_draft_token_ids check_health shutdown synchronize_device "
    "init_worker init_device load_model get_kv_cache_spec get_supported_kv_cache_layouts set_kv_cache_layout "
    "determine_available_memory initialize_from_config compile_or_warm_up_model update_max_model_len update_config "
    "get_supported_tasks get_model get_model_inspection apply_model get_cache_block_size_bytes vocab_size "
    "get_kv_connector_handshake_metadata get_encoder_timing_stats get_compilation_match_table get_draft_model "
    "supports_draft_weight_updates add_lora remove_lora pin_lora list_loras reset_mm_cache reset_encoder_cache "
    "release_late_interaction_query_cache sleep wake_up discard checkpoint_prepare checkpoint_restore profile annotate_profile "
    "save_sharded_state save_tensorized_model reload_weights reset_weights compute_weight_checksums update_weights "
    "init_weight_transfer_engine shutdown_weight_transfer_engine start_weight_update start_draft_weight_update finish_weight_update "
    "update_environment_variables elastic_ep_execute reinitialize_distributed adjust_rank wait_for_comm handle_ft_command "
    "get_kv_cache_specs initialize_cache determine_num_available_blocks start_profile stop_profile get_metrics "
    "start_worker_execution_loop init_cache_engine get_finished_kv_transfers"
)

_FORM = ({"str"}, {"tuple"}, {"dict"}, {"None", "int"})
"""What stands in the tuple of a call, in the words of pickletools."""
_KEEPS = frozenset({"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})


def call_name(pickled: bytes) -> str:
    """A name of METHODS, RESPONSE for an answer, OTHER for a call of another name, "" for what is neither.

    Opcodes are listed and the kinds of what they would leave on the stack are followed; nothing is executed. A pickle that is cut
    counts as a call as long as what is there has the form of one.
    """
    stack: list[str] = []
    last: list[str] = []
    name = text = ""
    try:
        for op, arg, _ in pickletools.genops(pickled):
            if op.name == "STOP":
                break
            if op.name in ("GLOBAL", "STACK_GLOBAL") and stack[:1] != ["mark"]:  # an answer begins with a member of an enum
                named = str(arg).rpartition(" ")[2] if op.name == "GLOBAL" else text
                return RESPONSE if named.rpartition(".")[2] == RESPONSE else ""
            if op.name in _KEEPS:
                continue
            last = _apply(op, stack)
            if stack[-1:] == ["str"] and isinstance(arg, str):
                text = arg
                name = name or (arg if stack == ["mark", "str"] else "")
    except (ValueError, IndexError, OverflowError, MemoryError):
        pass  # no pickle, or cut
    if stack == ["tuple"]:
        return _listed(name) if _is_call(last) else ""
    return _listed(name) if stack[:2] == ["mark", "str"] else ""


def _apply(op: pickletools.OpcodeInfo, stack: list[str]) -> list[str]:
    """Do to the stack what the opcode would, and return what it took off. Raises IndexError where there is not as much."""
    before = [one.name for one in op.stack_before]
    start = len(stack) - len(before)
    if "mark" in before:  # everything down to the last mark, and what the opcode wants before it
        start = len(stack) - 1 - stack[::-1].index("mark") - before.index("mark")
    taken = stack[start:] if start >= 0 else []
    if start < 0 or taken.count("mark") != before.count("mark"):
        raise IndexError(op.name)
    stack[start:] = [one.name for one in op.stack_after]
    return taken


def _is_call(taken: list[str]) -> bool:
    return taken[:1] == ["mark"] and len(taken) == 1 + len(_FORM) and all(a in b for a, b in zip(taken[1:], _FORM, strict=True))


def _listed(name: str) -> str:
    return name if name in METHODS else OTHER if name else ""
