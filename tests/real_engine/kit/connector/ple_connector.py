"""A connector that misbehaves on demand inside a real vLLM worker (a general plugin; put this folder on PYTHONPATH).

The names are those of an ordinary offload connector, so that nothing can be diagnosed from them; no product code may know this file.
Which fault, on which rank, is chosen when it fires, so that one server start (a minute) serves several faults:

FF_TRIGGER  a file whose content is "MODE RANK [SECONDS]", for example "exc 1" or "slow 1 3"; without it, or while it is
            empty, everything is normal (again): slow, qblock and deadlock end then, the others cannot be undone.
            MODE: exc | deadlock | rdeadlock | qfull | qblock | copyblock | slow | segv | exit | sysexit
            copyblock: the copy of one step's output never ends, and the next step raises (asynchronous scheduling only)
FF_FORCE_ASYNC=1  turn the engine's asynchronous scheduling on (the CPU platform forces it off)
"""

import contextlib
import os
import queue
import threading
import time

TRIGGER = os.environ.get("FF_TRIGGER", "")
table_lock, buffer_lock = threading.Lock(), threading.Lock()
request_queue = queue.Queue(maxsize=4)
copier = None
releaser = None
unsignalled = []


class ReadyEvent:
    """A device event that is not signalled while the fault lasts."""

    def __init__(self):
        self._event = threading.Event()
        unsignalled.append(self._event)

    def synchronize(self):
        self._event.wait()


def copy_loop():
    while True:
        request_queue.get().synchronize()


def start_copier():
    global copier
    if copier is None:
        copier = threading.Thread(target=copy_loop, name="ple-offload-copier", daemon=True)
        copier.start()


def write_back():
    # a plain lock that was let go of from outside cannot be released again
    with contextlib.suppress(RuntimeError), table_lock:
        time.sleep(0.5)
        with buffer_lock:
            pass


def release_afterwards():
    """Undo what can be undone once the trigger is empty."""
    while configured()[0]:
        time.sleep(0.2)
    while unsignalled:
        unsignalled.pop().set()
    if isinstance(table_lock, type(threading.Lock())) and table_lock.locked():
        table_lock.release()


def start_releaser():
    global releaser
    if releaser is None or not releaser.is_alive():
        releaser = threading.Thread(target=release_afterwards, name="offload-keepalive", daemon=True)
        releaser.start()


def block_output_copy():
    """The copies of outputs made from now on wait for an event that is not signalled. Whether that was so already."""
    from vllm.v1.worker import gpu_model_runner

    output = gpu_model_runner.AsyncGPUModelRunnerOutput
    if getattr(output, "_blocked", False):
        return True
    original, make = output.get_output, output.__init__

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self._ready = ReadyEvent()

    def get_output(self):
        if hasattr(self, "_ready"):  # an earlier step's output is delivered as ever
            self._ready.synchronize()
        return original(self)

    output.__init__, output.get_output = init, get_output
    output._blocked = True
    return False


def rank():
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def configured():
    """(mode, seconds) when the trigger names this rank, else ("", 0)."""
    try:
        with open(TRIGGER) as file:
            words = file.read().split()
    except OSError:
        return "", 0.0
    if len(words) < 2 or int(words[1]) != rank():
        return "", 0.0
    return words[0], float(words[2]) if len(words) > 2 else 3.0


def prepare_inputs():
    global table_lock, buffer_lock
    mode, seconds = configured()
    if not mode:
        return
    if mode in ("deadlock", "qblock"):
        start_releaser()
    if mode == "copyblock" and block_output_copy():
        raise RuntimeError("embedding lookup failed: index 512 is out of bounds")
    if mode == "exc":
        raise RuntimeError("embedding lookup failed: index 512 is out of bounds")
    if mode == "rdeadlock":
        table_lock, buffer_lock = threading.RLock(), threading.RLock()
    if mode in ("deadlock", "rdeadlock"):
        with buffer_lock:
            threading.Thread(target=write_back, name="kv-transfer-writer", daemon=True).start()
            time.sleep(0.2)
            with table_lock:
                pass
    if mode == "qfull":
        start_copier()
        request_queue.put_nowait(ReadyEvent())  # queue.Full on the sixth step
    if mode == "qblock":
        start_copier()
        request_queue.put(ReadyEvent())  # blocks for ever on the sixth step
    if mode == "slow":
        time.sleep(seconds)
    if mode == "segv":
        import ctypes

        ctypes.string_at(0)
    if mode == "exit":
        os._exit(17)
    if mode == "sysexit":
        raise SystemExit(3)


def force_async_scheduling():
    from vllm.platforms.cpu import CpuPlatform

    if getattr(CpuPlatform, "_forced_async", False):
        return
    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls, config):
        original(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    CpuPlatform._forced_async = True


def register():
    if os.environ.get("FF_FORCE_ASYNC"):
        force_async_scheduling()
    if not TRIGGER:
        return
    from vllm.model_executor.models import llama

    model = llama.LlamaForCausalLM
    if getattr(model, "_connected", False):
        return
    original = model.forward

    def forward(self, *args, **kwargs):
        prepare_inputs()
        return original(self, *args, **kwargs)

    model.forward = forward
    model._connected = True
