"""The frozen target model as a teacher: hidden states and logits of whole windows of text.

The model has torch's kernels in a form that gradients pass. Where the engine computes it and its layers are plain,
attention is dense and causal over a window, without a paged cache; others are read as they are served.
Letters: B windows, T tokens of each, H hidden size, V vocabulary.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.api import ModelError
from specserve.api.models import NO_BATCH, DecoderModel
from specserve.api.reading import TextReader
from specserve_eagle.training.head_rotation import head_rotary
from specserve_eagle.training.plain_layers import check_adaptable, other_parts
from specserve_eagle.training.target_files import TargetFiles
from specserve_eagle.training.teacher import Features, Lesson, LessonMemory, teacher_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from specserve.api.models import DecoderLayer, Projection, ServedModel, TargetNorm


OF_LOGITS = {"logits divisor", "logit cap"}
"""What `DecoderModel.finished` computes, in float32."""


class FrozenHead:
    """The target's output head in the target's dtype; not a module, so that it is neither trained nor saved."""

    def __init__(self, head: Projection) -> None:
        self.weight, self.bias = head.weight, head.bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class Target:
    """A frozen model whose layers' outputs can be read, and what heads take over of it."""

    def __init__(self, files: TargetFiles) -> None:
        model = files.model
        self.files, self.model, self.config = files, model, files.config
        self.head = FrozenHead(model.whole_head())
        self.layers: Sequence[DecoderLayer] = ()
        """Those that a head's can begin as, where the engine computes them."""
        self.rotary = head_rotary(self.config, model)
        """Of the attention of heads."""
        self.memory: LessonMemory | None = None
        """Where batches come again; None: each is taught anew."""
        self.reader: TextReader | None = None
        """None: training computes the layers itself."""
        if isinstance(model, DecoderModel):
            self.layers = model.layers
        if type(model) is not DecoderModel or other_parts(self.config):
            self.reader = readable(model)

    @classmethod
    def load(cls, path: Path, device: str, dtype: str = "auto") -> Target:
        return cls(TargetFiles(path, device, dtype))

    @property
    def decoder(self) -> DecoderModel:
        """For what learns through it. ModelError where its layers are not plain."""
        check_adaptable(self.config, self.files.library)
        if type(self.model) is not DecoderModel:
            raise ModelError(
                f"a draft adapter is trained through its target's layers, and family {self.config.family} computes its "
                "own in another way. Train a head for it, such as --head eagle3."
            )
        return self.model

    @cached_property
    def embedding(self) -> Tensor:
        """[V, H]. ModelError where the model changes what it gives."""
        return self.model.whole_embedding()

    @cached_property
    def final_norm(self) -> TargetNorm:
        """ModelError where it is no norm that a head could have."""
        return self.model.output_norm()

    @property
    def norm_weight(self) -> Tensor | None:
        """[H]: of the final norm; None where it has none that a head could have."""
        try:
            return self.final_norm.weight
        except ModelError:
            return None

    @torch.no_grad()
    def features(self, ids: Tensor, layers: tuple[int, ...]) -> Features:
        """ids: [B, T] int64."""
        with torch.autocast(ids.device.type, enabled=False):  # the arithmetic that serves it
            return self.computed(ids, layers) if self.reader is None else self.read(self.reader, ids, layers)

    def lesson(self, ids: Tensor, layers: tuple[int, ...], draft_ids: Tensor | None) -> Lesson:
        """ids: [B, T] int64; draft_ids: [D], see `teacher_of`."""

        def teach() -> Lesson:
            features = self.features(ids, layers)
            nothing = features.logits.new_empty(0)
            return Lesson(features._replace(logits=nothing), teacher_of(features.logits, draft_ids))

        return teach() if self.memory is None else self.memory.get(ids, teach)

    def computed(self, ids: Tensor, layers: tuple[int, ...]) -> Features:
        """By plain layers."""
        model, (B, T) = self.model, ids.shape
        assert isinstance(model, DecoderModel), "others are read"
        rotations = model.rotations(torch.arange(T, device=ids.device).repeat(B))
        masks = {window: window_mask(T, window, ids.device) for window in set(model.sliding_windows)}
        x = model.embed(ids.flatten())
        hidden: dict[int, Tensor] = {}
        for layer in range(model.num_layers):
            if layer in layers:
                hidden[layer] = x.view(B, T, -1).clone()
            q, k, v, gates = model.attention_input(layer, x, rotations[layer], NO_BATCH)
            attended = dense_attention(q, k, v, (B, T), masks[model.sliding_windows[layer]], model.scale)
            x = model.attention_output(layer, x, attended, NO_BATCH, gates)
        if model.num_layers in layers:
            hidden[model.num_layers] = x.view(B, T, -1).clone()
        assert model.final_norm is not None, "a whole model has a final norm"
        final = model.kernels.rms_norm(x, model.final_norm, model.config.norm_eps)
        logits = model.lm_head(final)
        if model.config.beyond_llama & OF_LOGITS:
            logits = model.finished(logits.float())
        return Features(hidden, final.view(B, T, -1), logits.view(B, T, -1))

    def read(self, reader: TextReader, ids: Tensor, layers: tuple[int, ...]) -> Features:
        """Window by window. Copies: what is read cannot be learned from. `final` is not normed where no head can have
        the norm: then none reads it."""
        last = self.model.num_layers
        texts = [reader.read(window, (*layers, last)) for window in ids.tolist()]
        hidden = {layer: torch.stack([text.hidden[layer] for text in texts]) for layer in {*layers, last}}
        return Features(hidden, self.normed(hidden[last]), torch.stack([text.logits for text in texts]))

    def normed(self, x: Tensor) -> Tensor:
        """x: [B, T, H], behind the final norm."""
        weight = self.norm_weight
        if weight is None:
            return x
        return self.model.kernels.rms_norm(x.flatten(0, 1).clone(), weight, self.final_norm.eps).view_as(x)


def readable(model: ServedModel) -> TextReader:
    """A model of another library reads with packed maps."""
    if not isinstance(model, DecoderModel):
        for projection in model.projections.values():
            projection.finalize(model.kernels)
    return TextReader(model)


def window_mask(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """[T, T], True where a token sees another; None: every token sees all before it."""
    if window is None or window >= length:
        return None
    ones = torch.ones(length, length, dtype=torch.bool, device=device)
    return ones.tril() & ones.triu(1 - window)


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, shape: tuple[int, int], mask: Tensor | None, scale: float
) -> Tensor:
    """q: [B * T, heads, d], k and v: [B * T, kv_heads, d] -> [B * T, heads, d]. mask: None for a causal one."""
    q, k, v = (t.reshape(*shape, *t.shape[1:]).transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out.transpose(1, 2).flatten(0, 1)
