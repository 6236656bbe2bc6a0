"""The functions that a process would call now, by name: what code they hold, and where it came from. Nothing of the target is run."""

from __future__ import annotations

from typing import Any

from collectors._cpython import Bounds, NotFound, Process, Unreadable, Unsupported
from collectors._cpython import _instances as instances
from collectors._cpython import _layouts as at
from collectors._cpython._code import read_code

TEXT = Bounds(text=4096)
CHAIN_MAX = 8
"""Functions that wrap each other."""
HOLDERS = {"staticmethod": 16, "classmethod": 16, "property": 16, "functools.partial": 16}
"""What may stand where a function is looked for, and where it keeps its function: the first word behind the header of each."""
Json = dict[str, Any]


class Functions:
    """Named functions of one process in one look."""

    def __init__(self, process: Process, modules: list[str]) -> None:
        """Raises Unreadable."""
        self.process, self.heap = process, process.heap
        self.modules = process.modules([*dict.fromkeys(modules), "sys"])
        self.flags = self._flags()

    def _flags(self) -> Json:
        """What else decides how a source is compiled: sys.hexversion, and the level of -O."""
        try:
            found = self.process.get(self.modules["sys"], "hexversion"), self.process.get(self.modules["sys"], "flags")
            optimize = self.process.get(found[1], "optimize") if self.heap.type_of(found[1]).kind != "tuple" else self._item(found[1], 3)
            return {"hexversion": self.process.value(found[0]), "optimize": self.process.value(optimize)}
        except (KeyError, NotFound, Unreadable):
            return {"hexversion": None, "optimize": None}

    def _item(self, address: int, index: int) -> int:
        return self.heap.memory.word(address + self.heap.layout.tuple_items + 8 * index)

    def look(self, module: str, name: str) -> Json:
        """One function: {"module", "function", "status", "kind", "inherited_from", "module_file", "chain": […], "error"}.

        status: read | not-imported (the process has no such module) | not-there (no such name in it) | not-python (its code is not
        Python's). chain: {"name", "file", "line", "sha256", "why"} (`read_code`) of the function and, from outside to inside, of those
        that it says it wraps (`__wrapped__`).
        """
        found: Json = {"module": module, "function": name, "status": "not-imported", "kind": "", "inherited_from": "", "module_file": ""}
        found |= {"chain": [], "error": ""}
        if module not in self.modules:
            return found
        try:
            found["module_file"] = self.file_of(module)
            address, found["inherited_from"] = self._walk(self.modules[module], name)
            found["kind"] = self.process.type_name(address)
            function = self._inside(address)
            found["status"] = "read" if function else "not-python"
            while function and len(found["chain"]) < CHAIN_MAX:
                code = read_code(self.heap, self.heap.memory.word(function + at.FUNCTION_CODE))
                found["chain"].append(code._asdict())
                wrapped = instances.own_attribute(self.heap, function, "__wrapped__")
                function = self._inside(wrapped) if wrapped else 0
        except NotFound as error:
            found |= {"status": "not-there", "error": str(error)}
        except (Unreadable, Unsupported) as error:
            found["error"] = str(error)
        return found

    def file_of(self, module: str) -> str:
        """The file that a module says it was made from; "" where it is not imported, or says nothing."""
        try:
            return self._text(self.modules[module], "__file__") if module in self.modules else ""
        except Unreadable:
            return ""

    def _walk(self, address: int, name: str) -> tuple[int, str]:
        """(what stands under a dotted name, the class that it is inherited from)."""
        inherited = ""
        for part in name.split("."):
            found, inherited = instances.own_attribute(self.heap, address, part), ""
            if found is None and self.heap.type_of(address).kind == "type":
                for base in self.heap.type_at(address).mro[1:]:
                    found = instances.own_attribute(self.heap, base, part)
                    if found is not None:
                        inherited = instances.type_name(self.heap, self.heap.type_at(base))
                        break
            if found is None:
                raise NotFound(f"no {part!r} there")
            address = found
        return address, inherited

    def _inside(self, address: int) -> int:
        """The function in what stands in for one (a method, a property, a partial); 0 where there is none written in Python."""
        for _ in range(CHAIN_MAX):
            kind = self.heap.type_of(address)
            if kind.kind == "function":
                return address
            offset = at.METHOD_FUNCTION if kind.kind == "method" else HOLDERS.get(self.process.type_name(address), 0)
            inner = self.heap.memory.word(address + offset) if offset else instances.own_attribute(self.heap, address, "__wrapped__")
            if not inner:
                return 0
            address = inner
        return 0

    def _text(self, address: int, name: str) -> str:
        found = instances.own_attribute(self.heap, address, name)
        value = self.process.decode(found, TEXT).value if found else None
        return value if isinstance(value, str) else ""
