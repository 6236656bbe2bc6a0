"""What CPython writes over the instructions of a function that runs hot, and how to read past it.

From 3.11 on the interpreter replaces an instruction in place by a specialised one and fills the cache words behind it. `co_code` shows
the code as it was compiled (Objects/codeobject.c, deopt_code): so does `as_compiled`. The tables were printed by each version itself
(dis.deoptmap, opcode._inline_cache_entries); the numbers of instructions do not change within a version, as .pyc files rest on them.
"""

from __future__ import annotations

from functools import lru_cache

INSTRUMENTED = {(3, 12): frozenset(range(237, 255)), (3, 13): frozenset({70, *range(236, 255)})}
"""What a debugger, a profiler or coverage (sys.monitoring) puts in place of an instruction, and in 3.13 the entry into compiled code: what
stood there before is kept elsewhere."""
_BASE = {
    (3, 11): {
        25: (4, (17, 18, 19, 20, 21)),  # BINARY_SUBSCR
        60: (1, (168, 169, 170)),  # STORE_SUBSCR
        92: (1, (177, 178, 179, 180)),  # UNPACK_SEQUENCE
        95: (4, (153, 154, 158, 159)),  # STORE_ATTR
        100: (0, (44,)),  # LOAD_CONST
        106: (4, (39, 40, 41, 42, 43)),  # LOAD_ATTR
        107: (2, (26, 27, 28, 29)),  # COMPARE_OP
        116: (5, (47, 48, 55)),  # LOAD_GLOBAL
        122: (1, (3, 4, 5, 6, 7, 8, 13, 14, 16)),  # BINARY_OP
        124: (0, (45, 46)),  # LOAD_FAST
        125: (0, (161, 167)),  # STORE_FAST
        140: (0, (38,)),  # JUMP_BACKWARD
        144: (0, (34,)),  # EXTENDED_ARG
        151: (0, (150,)),  # RESUME
        160: (10, (56, 57, 58, 59, 62, 63)),  # LOAD_METHOD
        166: (1, (64, 65, 66, 67, 72, 73, 76, 77, 78, 79, 80, 81, 113, 121, 127, 141, 143)),  # PRECALL
        171: (4, (22, 23, 24)),  # CALL
    },
    (3, 12): {
        25: (1, (19, 20, 21, 22)),  # BINARY_SUBSCR
        60: (1, (159, 160)),  # STORE_SUBSCR
        92: (1, (161, 166, 167)),  # UNPACK_SEQUENCE
        93: (1, (62, 63, 64, 65)),  # FOR_ITER
        95: (4, (113, 148, 153)),  # STORE_ATTR
        100: (0, (84,)),  # LOAD_CONST
        106: (9, (70, 72, 73, 76, 77, 78, 79, 80, 81, 82)),  # LOAD_ATTR
        107: (1, (57, 58, 59)),  # COMPARE_OP
        116: (4, (111, 112)),  # LOAD_GLOBAL
        122: (1, (6, 7, 8, 10, 13, 14, 16, 18)),  # BINARY_OP
        123: (1, (168,)),  # SEND
        124: (0, (86, 88)),  # LOAD_FAST
        125: (0, (154, 158)),  # STORE_FAST
        141: (1, (66, 67)),  # LOAD_SUPER_ATTR
        171: (3, (23, 24, 28, 29, 34, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 56)),  # CALL
    },
    (3, 13): {
        5: (1, (157, 158, 159, 160, 161)),  # BINARY_SUBSCR
        39: (1, (212, 213)),  # STORE_SUBSCR
        40: (3, (214, 215, 216, 217, 218, 219)),  # TO_BOOL
        45: (1, (3, 150, 151, 152, 153, 154, 155, 156)),  # BINARY_OP
        53: (3, (162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181)),  # CALL
        58: (1, (182, 183, 184)),  # COMPARE_OP
        59: (1, (185, 186)),  # CONTAINS_OP
        72: (1, (187, 188, 189, 190)),  # FOR_ITER
        77: (1, ()),  # JUMP_BACKWARD
        82: (9, (191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202)),  # LOAD_ATTR
        91: (4, (203, 204)),  # LOAD_GLOBAL
        93: (1, (205, 206)),  # LOAD_SUPER_ATTR
        97: (1, ()),  # POP_JUMP_IF_FALSE
        98: (1, ()),  # POP_JUMP_IF_NONE
        99: (1, ()),  # POP_JUMP_IF_NOT_NONE
        100: (1, ()),  # POP_JUMP_IF_TRUE
        104: (1, (208,)),  # SEND
        108: (4, (209, 210, 211)),  # STORE_ATTR
        117: (1, (220, 221, 222)),  # UNPACK_SEQUENCE
        149: (0, (207,)),  # RESUME
    },
}
"""Instruction -> (cache words behind it, what it is specialised to)."""


@lru_cache(None)
def _tables(version: tuple[int, int]) -> tuple[bytes, bytes]:
    """(instruction -> the one it was compiled as, that one -> cache words behind it)."""
    base, caches = bytearray(range(256)), bytearray(256)
    for compiled, (words, specialised) in _BASE[version].items():
        caches[compiled] = words
        for one in specialised:
            base[one] = compiled
    return bytes(base), bytes(caches)


def as_compiled(version: tuple[int, int], raw: bytes) -> bytes | None:
    """The instructions as they were compiled, caches zeroed; None where instrumentation hides some. Raises KeyError for another version."""
    base, caches = _tables(version)
    out = bytearray(raw)
    at = 0
    while at < len(out):
        if out[at] in INSTRUMENTED.get(version, ()):
            return None
        out[at] = base[out[at]]
        words = caches[out[at]]
        out[at + 2 : at + 2 + 2 * words] = bytes(min(2 * words, max(0, len(out) - at - 2)))
        at += 2 + 2 * words
    return bytes(out)
