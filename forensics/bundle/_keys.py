"""Which names hold something that must not leave the node: of variables, JSON keys, options, headers.

Two lessons shape this file. A log of an LLM engine is full of the word "token" and of lists of numbers that the diagnosis needs
(num_computed_tokens, block_ids, …_len); and a name like password_file or token_count holds no secret. So names are split into
words and judged by their last ones.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from itertools import pairwise


class Holds(enum.Enum):
    """What the value under a name is."""

    NOTHING = "nothing"
    SECRET = "secret"
    """A credential, in whatever form."""
    MAYBE_SECRET = "maybe-secret"
    """A credential when it is quoted or looks like one; else an ordinary word ("token: expected ,")."""
    PROMPT = "prompt"
    """What users wrote or got, also unquoted."""
    TEXT = "text"
    """The same, but the name is so common that only a quoted or bracketed value counts."""
    PROSE = "prose"
    """The same, and only when it reads like a sentence."""
    TOKENS = "token-ids"
    SCHEMA = "schema"
    REQUEST = "request"
    ENVIRONMENT = "env"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SECRET_WORDS = _words(
    "secret secrets password passwords passwd passphrase passcode pwd credential credentials apikey apikeys cookie dsn jwt"
)
_KEY_OF = _words(
    "api access private secret signing encryption account shared master auth service ssh client storage hmac license deploy ngc "
    "wandb openai anthropic hf aws azure session subscription admin root webhook"
)
_TOKEN_OF = _words(
    "auth access refresh hf api bearer session id github gh gitlab hub csrf xsrf jwt bot secret security user client vault slack "
    "wandb ngc registry huggingface read write personal service account oauth login admin join bootstrap x"
)
_TOKEN_OF_TEXT = _words(
    "eos bos pad unk sep cls mask special stop image video audio boi eoi think start end draft next last first new decode prefill "
    "sampled output input prompt per tool reasoning control placeholder"
)
_HARMLESS_ENDS = _words(
    "file files path paths dir name names type types count counts len length limit limits id ids expiry expires expired ttl size "
    "sizes budget rate version usage num index ratio error errors required enabled valid invalid provider backend class status "
    "format map mapping schema url uri pattern prefix"
)

_PROMPT = _words("prompt prompts")
_TEXT = _words(
    "messages content contents text texts input inputs chat_history conversation conversations arguments generated_text "
    "output_text input_text reasoning_content raw_prompt user_input instructions multi_modal_data partial_json delta_text"
)
_PROSE = _words("system query queries question answer document documents passage completion completions suffix reasoning")
_SCHEMA = _words(
    "guided_json guided_regex guided_grammar guided_choice json_schema structural_tag response_format structured_outputs regex "
    "grammar choice properties $defs definitions enum stop bad_words tools functions json ebnf"
)
_REQUEST = _words("rid rids x_request_id x_correlation_id correlation_id client_request_id x_trace_id bootstrap_room_id")
_ENVIRONMENT = _words("env environ environment")

CONTENT_NAMES = tuple(sorted(_PROMPT | _TEXT | _PROSE | _SCHEMA | {"schema"}, key=lambda name: (-len(name), name)))
"""Longest first, for an alternation."""


@lru_cache(maxsize=8192)
def holds(name: str) -> Holds:
    """Judge a name as it stands in code, JSON, a header or an option ("--api-key" without its dashes)."""
    plain = name.strip("-_ \t").replace("-", "_").lower()
    if plain in _PROMPT or plain.endswith(("_prompt", "_prompts")):
        return Holds.PROMPT
    if plain in _TEXT:
        return Holds.TEXT
    if plain in _PROSE:
        return Holds.PROSE
    if plain.endswith(("token_ids", "input_ids", "output_ids")) or plain == "tokens":
        return Holds.TOKENS
    if plain in _SCHEMA or plain == "schema":
        return Holds.SCHEMA
    if plain in _REQUEST or plain.endswith(("req_id", "req_ids", "request_id", "request_ids")):
        return Holds.REQUEST
    if plain in _ENVIRONMENT:
        return Holds.ENVIRONMENT
    return _credential(name)


def _credential(name: str) -> Holds:
    if name in ("PWD", "OLDPWD", "pwd"):  # the working directory; also a command
        return Holds.SECRET if name == "pwd" else Holds.NOTHING
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in _HARMLESS_ENDS:
        return Holds.NOTHING
    pairs = set(pairwise(words))
    if _SECRET_WORDS & set(words) or "authorization" in words:
        return Holds.SECRET
    if any(second in ("key", "keys") and first in _KEY_OF for first, second in pairs):
        return Holds.SECRET
    loud = name.isupper() and len(words) > 1  # an environment variable
    if loud and words[-1] in ("key", "token", "pat", "sas", "auth"):
        return Holds.NOTHING if words[-2] in _TOKEN_OF_TEXT else Holds.SECRET
    if words[-1] == "token":
        if len(words) > 1 and words[-2] in _TOKEN_OF:
            return Holds.SECRET
        return Holds.NOTHING if len(words) > 1 and words[-2] in _TOKEN_OF_TEXT else Holds.MAYBE_SECRET
    return Holds.MAYBE_SECRET if words[-1] == "auth" else Holds.NOTHING


def is_password(name: str) -> bool:
    """Whether even a bare number under this name is a secret."""
    return any(word in name.lower() for word in ("passw", "passphrase", "passcode"))


ENV_ALLOW = re.compile(
    r"(?:VLLM|SGLANG|SGL|TRTLLM|TLLM|TRT|TENSORRT|NCCL|RCCL|TORCH|PYTORCH|TORCHINDUCTOR|TORCHELASTIC|TRITON|CUDA|CUBLAS|CUDNN|NVIDIA|NVTE"
    r"|NVSHMEM|NIXL|MOONCAKE|MC|UCX|UCC|GLOO|OMP|OMPI|PMIX|PMI|MPI|MKL|KMP|OPENBLAS|NUMEXPR|BLIS|DYN|RAY|FLASHINFER|DEEPEP|DG|LMCACHE|HIP"
    r"|HSA|ROCR|AITER|XLA|TPU|NEURON|SLURM|POD|NODE|KUBERNETES_SERVICE|PYTHON|PYTEST|LD|LC|GLIBC|MALLOC|JEMALLOC|ASAN|TOKENIZERS|TRANSFORMERS"
    r"|SAFETENSORS|HF_HUB|HF_HOME|HF_DATASETS|FORENSICS|VIRTUAL|CONDA|XDG)(?:_[A-Z0-9_]*)?"
    r"|(?:LOCAL_|GROUP_|ROLE_|NODE_)?(?:RANK|WORLD_SIZE)|LOCAL_WORLD_SIZE|MASTER_(?:ADDR|PORT)|PATH|PWD|OLDPWD|HOME|USER|LOGNAME|SHELL"
    r"|SHLVL|TERM|LANG|TZ|HOSTNAME|TMPDIR|CC|CXX|_",
)
"""Names of environment variables whose value may be stored. A name that looks like a secret is not allowed even so."""
ENV_PLAIN_VALUE = re.compile(r"-?\d{1,9}(?:\.\d{1,6})?|true|false|yes|no|on|off|", re.IGNORECASE)
"""A switch or a quantity is stored under any name that does not look like a secret: a time limit is worth a diagnosis."""


def env_value_allowed(name: str, value: str) -> bool:
    """Whether an environment variable may be stored with its value (still subject to redaction by shape)."""
    if holds(name) in (Holds.SECRET, Holds.MAYBE_SECRET):
        return False
    return bool(ENV_ALLOW.fullmatch(name) or ENV_PLAIN_VALUE.fullmatch(value))
