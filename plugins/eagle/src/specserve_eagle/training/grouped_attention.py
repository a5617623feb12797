"""Attention of drafts over the text and over themselves, a few neighbouring drafts at a time.

The text that none of them sees is left out.

Letters: B windows, T tokens of each, A drafts of a window, R rows of all of them, d head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

DRAFTS_AT_ONCE = 16


class Group(NamedTuple):
    """Rows of neighbouring drafts, in every window."""

    rows: slice
    length: int
    """They see no later token of the text."""
    mask: Tensor
    """[rows, length + rows] bool, True where a row sees the text's token or the other row of the group."""


def groups_of(anchors: Tensor, width: int, mask_of: Callable[[Tensor, int], Tensor]) -> list[Group]:
    """anchors: [A], ascending, the last tokens of the text that drafts may see; width: the rows of a draft;
    mask_of(anchors, length): the mask of a group."""
    found = []
    for begin in range(0, len(anchors), DRAFTS_AT_ONCE):
        some = anchors[begin : begin + DRAFTS_AT_ONCE]
        length = int(some[-1]) + 1
        found.append(Group(slice(begin * width, (begin + len(some)) * width), length, mask_of(some, length)))
    return found


class KeysAndValues(NamedTuple):
    """[B, kv_heads, N, d] each."""

    k: Tensor
    v: Tensor


def attention_by_group(
    q: Tensor, text: KeysAndValues, own: KeysAndValues, groups: list[Group], scale: float | None = None
) -> Tensor:
    """q: [B, heads, R, d]; text: of T tokens; own: of R rows -> [B, heads, R, d]."""
    parts = []
    for rows, length, mask in groups:
        k, v = (torch.cat((of[:, :, :length], mine[:, :, rows]), 2) for of, mine in zip(text, own, strict=True))
        is_grouped = q.shape[1] != k.shape[1]
        parts.append(
            F.scaled_dot_product_attention(q[:, :, rows], k, v, attn_mask=mask, scale=scale, enable_gqa=is_grouped)
        )
    return torch.cat(parts, 2)
