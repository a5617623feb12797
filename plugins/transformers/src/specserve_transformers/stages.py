"""A pass of transformers' model in two calls: its base model, and what its class does to some rows afterwards.

The base model gets what its class gave it in the probe, with other tokens and positions. What the class does to the
hidden states (the head, scales, caps) is its own code, called with a base model that answers with the rows to score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from specserve.api.models import copy_tap
from specserve_transformers.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from transformers import PreTrainedModel

    from specserve_transformers.probe import ModuleCall, Probe
    from specserve_transformers.step import Step


class Answer(nn.Module):
    """In the place of the base model: answers with hidden states. kind: of its answers."""

    def __init__(self, base: nn.Module, kind: type) -> None:
        super().__init__()
        self.__dict__["base"] = base
        self.kind = kind
        self.hidden: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["base"], name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return (self.hidden,) if self.kind is tuple else self.kind(last_hidden_state=self.hidden)


class Stages:
    """Raises ModelError where the class is made otherwise. layer_list: the path of its layers."""

    def __init__(self, model: PreTrainedModel, found: Probe, layer_list: str, where: str) -> None:
        self.architecture = type(model).__name__
        refusal = Refusal(where, self.architecture)
        name = next((each for each in found.order[""] if layer_list.startswith(f"{each}.")), "")
        calls = found.calls_of(name)
        if not name or len(calls) != 1:
            raise refusal.raised(f"its class calls a base model {name!r} {len(calls)} times in a pass")
        self.call, self.ids, self.positions = calls[0], found.ids, found.positions
        given = [*self.call.args, *self.call.kwargs.values()]
        if not any(each is self.ids for each in given) or not any(each is self.positions for each in given):
            raise refusal.raised("its class changes tokens or positions before its base model gets them")
        parent, _, self.name = name.rpartition(".")
        self.model, self.owner, self.base = model, model.get_submodule(parent), model.get_submodule(name)
        self.embedding: nn.Module = model.get_input_embeddings()
        self.layer_list = cast("nn.ModuleList", model.get_submodule(layer_list))
        out = self.call.out
        self.answer = Answer(self.base, tuple if isinstance(out, tuple) else type(out))
        self.hidden_size = first_tensor(found.calls_of(f"{layer_list}.0")[0]).shape[-1]
        head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        heads = [] if head is None else [path for path, each in model.named_modules() if each is head]
        if not heads:
            raise refusal.raised("its class has no output head")
        self.head = heads[0]
        plain = [name, *(each for each in found.order[""] if each == "getitem"), self.head]
        self.plain_head = found.order[""] == plain and found.out.logits is found.calls_of(self.head)[0].out
        self.watched: set[int] = set()
        self.last_norm = next((each.path for each in found.calls if each.out is out[0]), None)
        """The module that gives the base model's hidden states."""

    def layers(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids, positions: [T] -> the base model's last hidden states [T, H]."""
        one = {id(self.ids): ids[None], id(self.positions): positions[None]}
        args = [one.get(id(each), each) for each in self.call.args]
        kwargs = {name: one.get(id(each), each) for name, each in self.call.kwargs.items()}
        out: Tensor = self.base(*args, **kwargs)[0][0]
        return out

    def normed(self, rows: Tensor) -> Tensor:
        """rows: [S, H], the last layer's outputs -> what the base model gives of them."""
        assert self.last_norm is not None
        out: Tensor = self.model.get_submodule(self.last_norm)(rows)
        return out

    def logits(self, rows: Tensor) -> Tensor:
        """rows: [S, H] -> [S, V]."""
        if self.plain_head:
            head = self.model.get_submodule(self.head)
            out: Tensor = head(rows)
            return out
        self.answer.hidden = rows[None]
        self.owner._modules[self.name] = self.answer
        try:
            zeros = torch.zeros((1, len(rows)), dtype=torch.int64, device=rows.device)
            made = self.model(input_ids=zeros, position_ids=zeros, use_cache=False, logits_to_keep=0)
        finally:
            self.owner._modules[self.name] = self.base
            self.answer.hidden = None
        logits: Tensor = made.logits[0]
        return logits

    def watch_taps(self, taps: Mapping[int, Tensor], step: Step) -> None:
        """From now on, copies what the step's taps want: the inputs of layers, and the last one's output."""
        count = len(self.layer_list)
        for layer in set(taps) - self.watched:
            self.watched.add(layer)
            if layer < count:

                def before(_: nn.Module, args: Any, kwargs: Any, layer: int = layer) -> None:
                    hidden = args[0] if args else kwargs["hidden_states"]
                    copy_tap(step.taps, layer, hidden[0])

                self.layer_list[layer].register_forward_pre_hook(before, with_kwargs=True)
            else:

                def after(_: nn.Module, args: Any, out: Any) -> None:
                    copy_tap(step.taps, count, (out[0] if isinstance(out, tuple) else out)[0])

                self.layer_list[count - 1].register_forward_hook(after)


def first_tensor(call: ModuleCall) -> Tensor:
    found: Tensor = call.args[0] if call.args else call.kwargs["hidden_states"]
    return found
