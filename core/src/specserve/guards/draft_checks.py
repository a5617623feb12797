"""What a valid draft is, and its normal form. Knows no drafter, no request and no step."""

from __future__ import annotations

from itertools import count
from operator import ge, le, lt
from typing import TYPE_CHECKING

import msgspec

from specserve.batch.drafts import ROOT, keep, parents_of
from specserve.faults import BadAnswerError
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence


class DraftFault(BadAnswerError):
    """The drafter broke its contract; the message is a short reason that labels a metric."""


def check_draft(draft: Draft, limit: int, vocab_size: int) -> Draft | None:
    """Validate and normalise: tuples of plain numbers, duplicate siblings merged, no child more likely to
    survive than its parent. None for an empty draft. `sources` is left out: only the engine merges drafts."""
    if is_normal(draft, limit, vocab_size):
        return draft
    if not isinstance(draft, Draft):
        raise DraftFault("not a Draft", f"{type(draft).__name__}; return a specserve.types.Draft or None")
    if not isinstance(draft.source, str):
        raise DraftFault("source is not text")
    tokens = numbers(draft.tokens, "tokens")
    size = len(tokens)
    if size > limit:
        raise DraftFault("more tokens than the limit", f"{size}; limits has {limit} for this request")
    if tokens and not (only(tokens, int) and min(tokens) >= 0 and max(tokens) < vocab_size):
        raise DraftFault("token out of range", f"{tokens}; a token is an int from 0 to {vocab_size - 1}")
    parents = None if draft.parents is None else numbers(draft.parents, "parents")
    if parents is not None:
        if len(parents) != size:
            raise DraftFault("parents of another length than tokens")
        if parents and not (only(parents, int) and min(parents) >= ROOT and all(map(lt, parents, count()))):
            raise DraftFault("a parent does not precede its child")
    survival = None if draft.survival is None else numbers(draft.survival, "survival")
    if survival is not None:
        if len(survival) != size:
            raise DraftFault("survival of another length than tokens")
        if survival and not (only(survival, int, float) and are_probabilities(survival)):
            raise DraftFault("survival outside 0..1")
    clean = Draft(tokens=tokens, parents=parents, survival=survival, source=draft.source)
    merged = merge_siblings(clean)
    return merged and monotone(merged)


def is_normal(draft: Draft, limit: int, vocab_size: int) -> bool:
    """Whether the draft is valid and in normal form, as most are: found in few operations, and never wrongly."""
    if type(draft) is not Draft or draft.sources is not None or type(draft.source) is not str:
        return False
    tokens, parents, survival = draft.tokens, draft.parents, draft.survival
    if type(tokens) is not tuple or not 0 < len(tokens) <= limit or set(map(type, tokens)) != {int}:
        return False
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        return False
    if parents is not None:
        if type(parents) is not tuple or len(parents) != len(tokens) or set(map(type, parents)) != {int}:
            return False
        if min(parents) < ROOT or not all(map(lt, parents, count())):
            return False
        if len(set(zip(parents, tokens, strict=True))) != len(tokens):
            return False
    if survival is None:
        return True
    if type(survival) is not tuple or len(survival) != len(tokens) or set(map(type, survival)) != {float}:
        return False
    return are_probabilities(survival) and is_monotone(survival, parents)


def are_probabilities(values: tuple[float, ...]) -> bool:
    """In 0..1; NaN, which compares with nothing, shows in the sum."""
    return min(values) >= 0.0 and max(values) <= 1.0 and sum(values) >= 0.0


def only(values: tuple[object, ...], *types: type) -> bool:
    return set(map(type, values)) <= set(types)


def numbers(values: object, name: str) -> tuple[int, ...]:
    """As a tuple of Python numbers: a one-dimensional tensor, or a sequence of numbers, of torch's and numpy's, too."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, (tuple, list)):
        raise DraftFault(f"{name} is not one-dimensional")
    return tuple(value.item() if hasattr(value, "item") else value for value in listed)


def monotone(draft: Draft) -> Draft:
    """Lower each survival to its parent's, so that a prefix of the sorted nodes holds every parent."""
    if draft.survival is None or is_monotone(draft.survival, draft.parents):
        return draft
    survival: list[float] = []
    for parent, own in zip(parents_of(draft), draft.survival, strict=True):
        survival.append(own if parent == ROOT else min(own, survival[parent]))
    return msgspec.structs.replace(draft, survival=tuple(survival))


def is_monotone(survival: Sequence[float], parents: Sequence[int] | None) -> bool:
    if parents is None:
        return all(map(ge, survival, survival[1:]))
    above = (*survival, 1.0)  # the root is node -1
    return all(map(le, survival, map(above.__getitem__, parents)))


def merge_siblings(draft: Draft) -> Draft | None:
    """Siblings with one token become one node, which takes over the children of both and the better survival
    (both estimate the same event), so that no child survives it."""
    if draft.parents is None or len(set(zip(draft.parents, draft.tokens, strict=True))) == len(draft.tokens):
        return draft if draft.tokens else None
    first: dict[tuple[int, int], int] = {}
    becomes: dict[int, int] = {ROOT: ROOT}
    parents = list(draft.parents)
    survival = None if draft.survival is None else list(draft.survival)
    for node, token in enumerate(draft.tokens):
        parents[node] = becomes[parents[node]]
        becomes[node] = into = first.setdefault((parents[node], token), node)
        if survival is not None:
            survival[into] = max(survival[into], survival[node])
    merged = msgspec.structs.replace(
        draft, parents=tuple(parents), survival=None if survival is None else tuple(survival)
    )
    return keep(merged, set(first.values()))
