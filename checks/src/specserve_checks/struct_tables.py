"""msgspec's type tables of every Struct, built before two threads can ask for the same one.

msgspec builds the tables of a Struct when the type is first decoded or converted. While it resolves the annotations of
a nested Struct, another thread may run, find the outer one's unfinished tables, and read a null pointer: the process
dies (msgspec 0.22). Finished tables are only read. So they are built in one thread, for all Structs that are defined.
These are found by walking the subclasses: a list would miss the next one.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = Lock()
"""Two engines of one process may start at once."""
_BUILT: WeakSet[type[msgspec.Struct]] = WeakSet()
"""Weak, so that a Struct that was defined in a function can be freed."""
_FAILED: WeakKeyDictionary[type[msgspec.Struct], int] = WeakKeyDictionary()
"""Those that could not be built, with how many modules were loaded then. They are tried again when there are more: the
names in their annotations may be defined by then."""


def build_struct_tables() -> frozenset[type[msgspec.Struct]]:
    """The Structs whose tables this call built. Call it after the import of the modules that define them, and before
    another thread decodes them; what was built is not built again.

    Structs that no decoder takes are left out, since no thread can convert them either: their annotations name types
    that are imported for the type checker only, or that msgspec does not allow."""
    with _LOCK:
        loaded = len(sys.modules)
        unbuilt = {
            struct for struct in subclasses(msgspec.Struct) if struct not in _BUILT and _FAILED.get(struct) != loaded
        }
        built = frozenset(struct for struct in unbuilt if builds(struct))
        _BUILT.update(built)
        _FAILED.update(dict.fromkeys(unbuilt - built, loaded))
        return built


def subclasses(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for struct in base.__subclasses__():
        yield struct
        yield from subclasses(struct)


def builds(struct: type[msgspec.Struct]) -> bool:
    """A decoder needs the tables, and makes no instance."""
    try:
        msgspec.json.Decoder(struct)
    except (NameError, AttributeError, TypeError):
        return False
    return True
