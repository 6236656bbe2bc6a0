"""A member of a shared-memory ring in the layout of vLLM's ShmRingBuffer, started by tests; it obeys one command a line.

    create SLOTS CHUNK_MIB READERS | attach NAME | map NAME | bare BYTES       answers with the segment's name
    put EXPR | overflow | begin | take READER COUNT | fill HEX | unlink        answers "done"

The order of the stores is the engine's: written off, payload, read flags off, written on. A reader sets its flag once it is done.
"""

import ctypes
import enum
import os
import pickle
import sys
from multiprocessing import resource_tracker, shared_memory

MIB = 1024 * 1024


class ResponseStatus(enum.Enum):
    SUCCESS = 1


def attach(name):
    resource_tracker.register = lambda *_: None  # as the engine does: a reader must not remove the segment when it ends
    return shared_memory.SharedMemory(name=name)


def only_map(name):
    """Mapped and closed, which the mmap module cannot do: it keeps a descriptor of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    fd = os.open(f"/dev/shm/{name}", os.O_RDWR)
    size = os.fstat(fd).st_size
    assert libc.mmap(None, ctypes.c_size_t(size), 3, 1, fd, ctypes.c_long(0)) not in (None, 2**64 - 1)
    os.close(fd)


class Ring:
    def __init__(self, memory, slots, chunk, readers):
        self.buf, self.slots, self.chunk, self.width = memory.buf, slots, chunk, 1 + readers
        self.next = 0

    def flags(self, slot):
        return self.slots * self.chunk + slot * self.width

    def begin(self):
        at = self.flags(self.next)
        assert not self.buf[at] or all(self.buf[at + 1 : at + self.width]), "the ring is full"
        self.buf[at] = 0

    def end(self):
        at = self.flags(self.next)
        self.buf[at + 1 : at + self.width] = bytes(self.width - 1)
        self.buf[at] = 1
        self.next = (self.next + 1) % self.slots

    def put(self, message):
        self.begin()
        raw = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        data = b"\0" + (1).to_bytes(2, "big") + len(raw).to_bytes(4, "big") + raw
        at = self.next * self.chunk
        self.buf[at : at + len(data)] = data
        self.end()

    def overflow(self):
        self.begin()
        self.buf[self.next * self.chunk] = 1
        self.end()

    def take(self, reader):
        at = self.flags(self.next)
        assert self.buf[at] and not self.buf[at + 1 + reader], "nothing to take"
        self.buf[at + 1 + reader] = 1
        self.next = (self.next + 1) % self.slots


def main():
    ring = memory = None
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        answer = "done"
        if command == "create":
            slots, mib, readers = map(int, rest.split())
            memory = shared_memory.SharedMemory(create=True, size=(mib * MIB + 1 + readers) * slots)
            ring, answer = Ring(memory, slots, mib * MIB, readers), memory.name
        elif command == "attach":
            name, slots, mib, readers = rest.split()
            memory = attach(name)
            ring, answer = Ring(memory, int(slots), int(mib) * MIB, int(readers)), name
        elif command == "map":
            only_map(rest)
        elif command == "bare":
            memory = shared_memory.SharedMemory(create=True, size=int(rest))
            answer = memory.name
        elif command == "put":
            ring.put(eval(rest))
        elif command == "overflow":
            ring.overflow()
        elif command == "begin":
            ring.begin()
        elif command == "take":
            reader, count = map(int, rest.split())
            for _ in range(count):
                ring.take(reader)
        elif command == "fill":
            memory.buf[len(memory.buf) - len(rest) // 2 :] = bytes.fromhex(rest)
        elif command == "unlink":
            memory.unlink()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
