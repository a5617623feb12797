"""The frozen target model as a teacher: hidden states and logits of whole windows of text.

The decoder is the core's, with torch's kernels in a form that gradients pass. Where its layers are plain, attention is
dense and causal over a window, without a paged cache; other models are read as they are served.
Letters: B windows, T tokens of each, H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.api.models import NO_BATCH, installed_formats
from specserve.api.reading import TextReader
from specserve.models.loader import ModelLoader
from specserve_eagle.training.differentiable import DifferentiableKernels
from specserve_eagle.training.head_rotation import head_rotary
from specserve_eagle.training.plain_layers import other_parts
from specserve_eagle.training.teacher import Features, Lesson, LessonMemory, teacher_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from specserve.api.models import DecoderModel


OF_LOGITS = {"logits divisor", "logit cap"}
"""What `DecoderModel.finished` computes, in float32."""


class Target:
    """A frozen model whose layers' outputs can be read."""

    def __init__(self, model: DecoderModel) -> None:
        self.model = model
        self.config = model.config
        self.rotary = head_rotary(model)
        """Of the attention of heads."""
        self.reader = TextReader(model) if other_parts(model.config) else None
        self.memory: LessonMemory | None = None
        """Where batches come again; None: each is taught anew."""

    @classmethod
    def load(
        cls, path: Path, device: str, dtype: str = "auto", on_progress: Callable[[int, int], None] | None = None
    ) -> Target:
        loader = ModelLoader(formats=installed_formats(), on_progress=on_progress)
        return cls(
            loader.load_decoder(path, kernels=DifferentiableKernels(), dtype=dtype, device=device, max_model_len=None)
        )

    @torch.no_grad()
    def features(self, ids: Tensor, layers: tuple[int, ...]) -> Features:
        """ids: [B, T] int64."""
        with torch.autocast(ids.device.type, enabled=False):  # the arithmetic that serves it
            return self.computed(ids, layers) if self.reader is None else read_by(self.reader, self.model, ids, layers)

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


def read_by(reader: TextReader, model: DecoderModel, ids: Tensor, layers: tuple[int, ...]) -> Features:
    """Window by window. Copies: what is read cannot be learned from."""
    last = model.num_layers
    texts = [reader.read(window, (*layers, last)) for window in ids.tolist()]
    hidden = {layer: torch.stack([text.hidden[layer] for text in texts]) for layer in {*layers, last}}
    final = model.normed(hidden[last].flatten(0, 1), model.final_norm).view_as(hidden[last])
    return Features(hidden, final, torch.stack([text.logits for text in texts]))


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
