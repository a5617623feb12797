"""The numbers of layers whose MLP is a mixture of experts (Shazeer et al., 2017). Knows no file."""

from __future__ import annotations

from typing import Literal

import msgspec

Scores = Literal["softmax", "softmax of the chosen", "sigmoid"]
"""What turns a router's logits into weights: a softmax over all experts or over those that are chosen, or the sigmoid
of each."""


class ExpertsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A router gives each token to the `chosen` experts with the highest logits; of equal ones the lower is taken. It
    computes in float32, from logits in the model's dtype or in float32. What the experts give is multiplied by their
    weights and added in float32, the highest first, and rounded once. With sigmoids those with the highest scores are
    chosen, after a bias of each expert's own, and scores, sums and weights are rounded each."""

    count: int
    """Experts of a layer."""
    chosen: int
    """Experts of a token."""
    inner_size: int
    """The intermediate size of one expert."""
    layers: tuple[bool, ...]
    """Per layer: whether it has experts. The others have a plain MLP."""
    scores: Scores = "softmax"
    renormalised: bool = False
    """The weights of the chosen are divided by their sum."""
    added_to_sum: float = 0.0
    """What is added to that sum; only of sigmoids."""
    weight_scale: float = 1.0
    """What weights are multiplied by; only of sigmoids."""
    rounded: bool = True
    """Weights are rounded to the dtype of the logits."""
    wide_logits: bool = False
    """The router's weights are float32, and so are its products and logits."""
    expert_scales: bool = False
    """Weights are multiplied by a number of each expert's own, in float32; only of weights that are not rounded."""
    beside_mlp: bool = False
    """Layers with experts have their plain MLP, too, with norms for each of both: see
    `specserve.models.mlp.MlpBesideExperts`."""
    router_bias: bool = False
    shared_size: int | None = None
    """The intermediate size of an MLP that every token passes beside its experts, the shared expert; None for none.
    What it gives is added to the rounded sum of theirs, and rounded."""
    shared_gate: bool = False
    """What the shared expert gives is multiplied by the sigmoid of a linear map of the layer's input to one number."""
    choice_bias: bool = False
    """Each expert has a number, in float32, that is added to its score for the choice alone; only of sigmoids."""
