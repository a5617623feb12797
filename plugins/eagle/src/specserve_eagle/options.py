"""The options of eagle, by the names that users of speculative decoding know, and the checks that involve several."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from specserve.api import ConfigError, ModelError
from specserve.api.files import locate_on_disk
from specserve_eagle.checkpoints.detect import DraftKind, kind_of

MAX_STEPS, MAX_TOPK, MAX_DRAFT_TOKENS = 16, 16, 256
AUTO: Literal["auto"] = "auto"
DraftWeights: TypeAlias = Literal["auto", "int8"]


def check_files(model: str) -> DraftKind | None:
    """The kind of the draft model; None where it is not on this disk yet. Raises ModelError for a path that holds no
    draft model, or one whose files are damaged."""
    try:
        path = locate_on_disk(model)
        return None if path is None else kind_of(path)
    except ModelError as error:
        raise ModelError(f"eagle.model: {error}") from error


class EagleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set eagle.model=PATH --set eagle.steps=3`."""

    model: str | None = None
    """The draft head or draft model: a directory or a registered name. A target with MTP layers may be its own."""
    steps: Annotated[int, Meta(ge=1, le=MAX_STEPS)] | Literal["auto"] = "auto"
    """Passes of the draft model per step, which is the depth of a draft; auto goes on while another pass pays. Of a
    P-EAGLE head: draft tokens of its one pass; auto takes as many as it was trained for, 16 at most."""
    topk: Annotated[int, Meta(ge=1, le=MAX_TOPK)] = 1
    """Children of a draft token; 1 drafts a chain."""
    draft_tokens: Annotated[int, Meta(ge=2, le=MAX_DRAFT_TOKENS)] | None = None
    """Rows that a request verifies per step at most, the last committed token among them; None: steps + 1 for a chain,
    and as many as pay for a tree."""
    weights: DraftWeights = "auto"
    """How the weights of the draft model's linear maps are kept. auto is the target's dtype, and what the file has of a
    draft model that is no head. int8 is 8 bits with a scale for each output: half the memory to read in every pass."""

    def __post_init__(self) -> None:
        kind = None if self.model is None else check_files(self.model)  # told before the target is loaded
        self.check_size(kind)

    def check_size(self, kind: DraftKind | None) -> None:
        """ConfigError for more draft tokens than a draft has; with a kind that is not known yet, than any has."""
        if self.steps == "auto" or self.draft_tokens is None:
            return
        if self.topk == 1 and self.draft_tokens != self.steps + 1:
            raise ConfigError(
                f"draft_tokens of a chain is steps + 1; got steps = {self.steps} and draft_tokens = "
                f"{self.draft_tokens}. Leave draft_tokens out, or set topk above 1 for a tree."
            )
        if kind in (None, "block"):  # every node may have children
            widest = sum(self.topk**depth for depth in range(self.steps + 1))
        else:
            widest = 1 + self.topk + (self.steps - 1) * self.topk**2
        if self.draft_tokens > widest:
            raise ConfigError(
                f"draft_tokens must be at most {widest}, the nodes of a tree with steps = {self.steps} and topk = "
                f"{self.topk}; got {self.draft_tokens}. Lower draft_tokens, or raise steps or topk."
            )

    @property
    def max_nodes(self) -> int:
        """Draft tokens of one request at most."""
        if self.draft_tokens is not None:
            return self.draft_tokens - 1
        return self.max_steps if self.topk == 1 else MAX_DRAFT_TOKENS

    @property
    def max_rows(self) -> int:
        """Rows of one request that a draft computes at most: the last committed token and the nodes with children."""
        return 1 + self.topk * (self.max_steps - 1)

    @property
    def max_steps(self) -> int:
        """The deepest draft."""
        return MAX_STEPS if self.steps == "auto" else self.steps
