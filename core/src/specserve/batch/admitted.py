"""The requests of an engine as plugins see them: everything can be read and nothing changed.

Hooks and the parts of plugins are handed the engine's own requests, without copies. Whoever assigns to one of their
attributes or changes one of their lists gets an AttributeError, whose place names the author's line. The engine changes
them through `assign` and the methods of `list` and `dict` themselves, which costs a step next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

import msgspec

from specserve.batch.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.types import SamplingParams

K = TypeVar("K")
V = TypeVar("V")
assign = object.__setattr__
"""`assign(request, "computed", 7)`: for the engine alone."""


def refuse(what: str) -> AttributeError:
    return AttributeError(
        f"{what} is the engine's: a plugin reads requests and may not change them. Keep what you need to change in an "
        f"object of your own, or in a copy"
    )


def refuse_list(self: object, *arguments: object, **keywords: object) -> NoReturn:
    raise refuse("a list of a request, such as request.tokens,")


def refuse_dict(self: object, *arguments: object, **keywords: object) -> NoReturn:
    raise refuse("a table of a request, such as request.params.logit_bias,")


class OwnedList(list[V], Generic[V]):
    """A list that only `list.extend(owned, ...)` and the like change. Slices, sums and copies of it are plain lists."""

    __slots__ = ()
    append = extend = insert = remove = pop = clear = sort = reverse = refuse_list
    __setitem__ = __delitem__ = __iadd__ = __imul__ = refuse_list


class OwnedDict(dict[K, V], Generic[K, V]):
    """A dict that only `dict.update(owned, ...)` and the like change."""

    __slots__ = ()

    def __init__(self, values: Mapping[K, V]) -> None:
        super().__init__(values)

    update = setdefault = pop = popitem = clear = refuse_dict
    __setitem__ = __delitem__ = __ior__ = refuse_dict


class AdmittedRequest(Request):
    """Made by `finalize`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise refuse(f"request.{name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise refuse(f"request.{name}")


def finalize(request: Request) -> Request:
    """The same request, which only the engine can change from now on."""
    request.tokens = OwnedList(request.tokens)
    request.blocks = OwnedList(request.blocks)
    request.hashes = OwnedList(request.hashes)
    request.processors = OwnedList(request.processors)
    request.processor_parts = OwnedList(request.processor_parts)
    request.acceptance_histogram = OwnedList(request.acceptance_histogram)
    request.by_drafter = OwnedDict(request.by_drafter)
    request.preempted_at = OwnedList(request.preempted_at)
    request.trace_headers = OwnedDict(request.trace_headers)
    request.params = without_open_tables(request.params)
    request.__class__ = AdmittedRequest
    return request


def without_open_tables(params: SamplingParams) -> SamplingParams:
    if params.logit_bias is None:
        return params
    return msgspec.structs.replace(params, logit_bias=OwnedDict(params.logit_bias))
