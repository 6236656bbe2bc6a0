"""Classes and builders that the test and its children share: the child makes the object, the test knows what it should look like."""

from __future__ import annotations

import collections
import dataclasses
import enum


class Plain:
    """Attributes in a dict, set one after the other, so that instances share keys or stop sharing them."""

    def __init__(self, attributes, deleted=()):
        for name, value in attributes.items():
            setattr(self, name, value)
        for name in deleted:
            setattr(self, name, None)
            delattr(self, name)


class Opened(Plain):
    """As Plain, after somebody has asked for its __dict__: no inline values any more."""

    def __init__(self, attributes):
        super().__init__(attributes)
        self.__dict__  # noqa: B018


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left, right):
        self.left = left
        self.right = right


class Mixed(Slotted):
    """Slots of its base, and a dict."""

    def __init__(self, left, right, **more):
        super().__init__(left, right)
        self.__dict__.update(more)


@dataclasses.dataclass
class Record:
    name: str
    value: object
    tags: list = dataclasses.field(default_factory=list)


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 10


Point = collections.namedtuple("Point", "x y")


class Count(int):
    pass


class Text(str):
    pass


class Bag(dict):
    pass


def churned(pairs, deleted):
    """A dict from which keys were taken out again."""
    made = {}
    for key in deleted:
        made[key] = None
    for key, value in pairs:
        made[key] = value
    for key in deleted:
        if key not in dict(pairs):
            del made[key]
    return made


def rotated(items, by, maxlen=None):
    """A deque that does not begin at the start of a block."""
    made = collections.deque(items, maxlen)
    made.rotate(by)
    return made


def churned_set(items):
    """A set with the marks of deleted members."""
    made = {*items, *(f"gone {i}" for i in range(20))}
    made -= {f"gone {i}" for i in range(20)}
    return made
