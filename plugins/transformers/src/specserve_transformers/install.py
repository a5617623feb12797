"""Puts the engine's arithmetic in the place of transformers' modules: products, norms, activations, rotations, experts.

Every module whose own calls are not exact is replaced or made safe; the others compute as they are. The weights of
replaced modules are read where they are packed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from specserve.api.models import Projection, QuantisedWeight, Router, dense
from specserve_transformers.activations import GatedMlp, SafeActivation, gate_of, is_activation
from specserve_transformers.blocks import blocks_of
from specserve_transformers.direct_calls import DirectCalls
from specserve_transformers.experts import RowExperts
from specserve_transformers.interface import EXPERTS
from specserve_transformers.linears import Leaf, PartOfProduct, Product, SharedProduct
from specserve_transformers.norms import RowNorm, recognise
from specserve_transformers.probe import ROWS
from specserve_transformers.refusals import check_functions
from specserve_transformers.rotations import PositionTable, gives_positions
from specserve_transformers.row_safe import SafeForward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from transformers import PreTrainedModel

    from specserve.api.models import LoadRequest
    from specserve_transformers.probe import Probe
    from specserve_transformers.step import Step
    from specserve_transformers.weights import WeightPlan

HEAD = "lm_head"
GATING = (["mul"], ["mul", "dropout"])
"""What a gated MLP calls beside its modules; nothing is dropped in evaluation."""


class Installer:
    """Of one model, which it changes. `projections`: the products that plugins may adapt, and the head. `private`: the
    others. length: of the context that is served."""

    def __init__(
        self, model: PreTrainedModel, found: Probe, plan: WeightPlan, request: LoadRequest, step: Step, length: int
    ) -> None:
        self.model, self.found, self.plan, self.request, self.step = model, found, plan, request, step
        self.kernels, self.length = request.kernels, length
        self.projections: dict[str, Projection] = {}
        self.private: list[Projection] = []
        self.replaced: set[str] = set()
        self.products: list[Product] = []
        self.shared: dict[str, SharedProduct] = {}
        """By the path of each linear map that is one of several."""
        self.blocks = blocks_of(model, found)
        """Of every layer, where they are wired as the engine's own."""
        self.names = {
            maps: name for layer, block in enumerate(self.blocks) for maps, name in block.names(layer).items()
        }

    def install(self, where: str) -> None:
        self.install_products()
        self.load_the_rest()
        self.install_experts()
        for path, module in list(self.model.named_modules()):
            if path and path not in self.replaced:
                self.replace_small(path, module)
        self.install_gated_mlps()
        check_functions(self.found, self.replaced, where, type(self.model).__name__)
        calls = DirectCalls()
        for path, module in self.model.named_modules():
            calls.install(module, is_attention=any(call.path == path for call in self.found.layers))
        for path, functions in self.found.functions.items():
            if path not in self.replaced and set(functions.values()) - {"exact"}:
                module = self.model.get_submodule(path)
                module.forward = SafeForward(module)

    # --- products -----------------------------------------------------------------------------------

    def install_products(self) -> None:
        head = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        linears = {path: each for path, each in self.model.named_modules() if type(each) in (nn.Linear, Conv1D)}
        grouped = self.groups(linears)
        for path, module in linears.items():
            if path in self.replaced:
                continue
            paths = grouped.get(path, [path])
            self.install_group(paths, [linears[each] for each in paths], is_head=module is head)

    def groups(self, linears: dict[str, nn.Module]) -> dict[str, list[str]]:
        """By the first of them, linear maps of one parent that got one tensor."""
        by_input: dict[tuple[str, int, bool], list[str]] = defaultdict(list)
        for call in self.found.calls:
            module = linears.get(call.path)
            if type(module) is nn.Linear and len(call.args) == 1:
                key = (call.path.rpartition(".")[0], id(call.args[0]), module.bias is not None)
                by_input[key].append(call.path)
        return {
            paths[0]: paths
            for paths in by_input.values()
            if len(paths) > 1 and len(set(paths)) == len(paths) and not any(map(self.is_alone, paths))
        }

    def is_alone(self, path: str) -> bool:
        return self.is_quantised(path) or self.is_router(path)

    def is_router(self, path: str) -> bool:
        """Is it in the module that holds a mixture's experts, with an output for each?"""
        outputs = len(self.model.get_parameter(f"{path}.weight"))
        return any(
            path.startswith(f"{experts.rpartition('.')[0]}.")
            and len(self.model.get_parameter(f"{experts}.down_proj")) == outputs
            for experts in self.found.experts
        )

    def is_quantised(self, path: str) -> bool:
        name = f"{path}.weight"
        stored = self.plan.stored.get(self.plan.tied.get(name, name))
        return stored is not None and self.plan.checkpoint.find(stored).quantised

    def install_group(self, paths: Sequence[str], modules: Sequence[nn.Module], *, is_head: bool) -> None:
        read = [self.read(path, module) for path, module in zip(paths, modules, strict=True)]
        biases = [bias for _, bias in read if bias is not None]
        weight = read[0][0] if len(read) == 1 else torch.cat([dense(each) for each, _ in read])
        bias = None if not biases else torch.cat(biases)
        slices, begin = {}, 0
        for path, (each, _) in zip(paths, read, strict=True):
            slices[path] = slice(begin, begin + each.shape[0])
            begin += each.shape[0]
        adaptable = not is_head and all(map(self.has_rows_of_step, paths))
        name = HEAD if is_head else self.names.get(tuple(paths)) or joined(paths)
        kind = Router if self.is_router(paths[0]) else Projection
        made = kind(name, weight, bias, self.kernels.linear, {HEAD: slices[paths[0]]} if is_head else slices)
        if adaptable or is_head:
            self.projections[name] = made
        else:
            self.private.append(made)
        product = Product(made, self.step, self.kernels.row_tile, adaptable=adaptable)
        self.products.append(product)
        if len(paths) == 1:
            self.put(paths[0], product)
            return
        shared = SharedProduct(product, list(slices.values()))
        for index, path in enumerate(paths):
            self.shared[path] = shared
            self.put(path, PartOfProduct(shared, index))

    def read(self, path: str, module: nn.Module) -> tuple[Tensor | QuantisedWeight, Tensor | None]:
        """The weight [out, in] and the bias."""
        weight = self.plan.take(f"{path}.weight")
        bias = None if getattr(module, "bias", None) is None else dense(self.plan.take(f"{path}.bias"))
        return (dense(weight).t().contiguous() if isinstance(module, Conv1D) else weight), bias

    def has_rows_of_step(self, path: str) -> bool:
        calls = self.found.calls_of(path)
        return len(calls) == 1 and calls[0].args[0].shape[:-1].numel() == ROWS and is_rows(calls[0].args[0].shape)

    # --- all else -----------------------------------------------------------------------------------

    def load_the_rest(self) -> None:
        """Parameters of modules that are not products."""
        for path, module in self.model.named_modules():
            for name, parameter in module._parameters.items():
                full = f"{path}.{name}".removeprefix(".")
                if parameter is not None and full in self.plan.wanted:
                    module._parameters[name] = nn.Parameter(dense(self.plan.take(full)), requires_grad=False)
            for name, buffer in module._buffers.items():
                full = f"{path}.{name}".removeprefix(".")
                if buffer is not None and full in self.plan.wanted:
                    module._buffers[name] = dense(self.plan.take(full))

    def install_experts(self) -> None:
        for path in dict.fromkeys(self.found.experts):
            module = self.model.get_submodule(path)
            adaptable = self.has_rows_of_step(path)
            made = RowExperts(path, module, self.kernels, self.step if adaptable else None)
            module.__dict__[EXPERTS] = made
            maps = [each for expert in made.experts for each in expert]
            if adaptable:
                self.projections |= {each.name: each for each in maps}
            else:
                self.private += maps
            self.replaced |= {path, *(f"{path}.{name}" for name, _ in module.named_modules() if name)}

    def replace_small(self, path: str, module: nn.Module) -> None:
        if gives_positions(self.found, path, module):
            self.put(path, PositionTable(module, self.length, self.request.dtype, self.request.device))
        elif is_activation(self.found, path, module):
            self.put(path, SafeActivation(module))
        elif self.may_be_norm(path, module):
            size = self.found.calls_of(path)[0].args[0].shape[-1]
            form = recognise(module, size, self.request.dtype)
            if form is not None:
                self.put(path, RowNorm(form, module, self.kernels, self.request.dtype, size))

    def may_be_norm(self, path: str, module: nn.Module) -> bool:
        calls = self.found.calls_of(path)
        if not calls or any(True for _ in module.children()) or any(True for _ in module.buffers()):
            return False
        if not set(self.found.functions.get(path, {}).values()) - {"exact"} and type(module) is not nn.LayerNorm:
            return False
        size = calls[0].args[0].shape[-1:] if calls[0].args else ()
        one_tensor = all(len(call.args) == 1 and not call.kwargs for call in calls)
        shapes = [parameter.shape for parameter in module.parameters()]
        return one_tensor and len(shapes) <= 2 and all(shape == size for shape in shapes)

    def install_gated_mlps(self) -> None:
        for path, products in self.found.products.items():
            if (mlp := self.gated_mlp(path, products)) is not None:
                self.put(path, mlp)

    def gated_mlp(self, path: str, products: list[Any]) -> GatedMlp | None:
        """Where the module is down(activation(gate(x)) * up(x)), by the tensors that it handed on."""
        own = self.found.calls_of(path)
        children = [each for each in self.found.order[path] if each.startswith(f"{path}.")]
        functions = [each for each in self.found.order[path] if each not in children]
        if len(own) != 1 or len(children) != 4 or functions not in GATING or len(own[0].args) != 1 or own[0].kwargs:
            return None
        calls = {each: self.found.calls_of(each)[0] for each in children}
        (factors, inner), (x,) = products[0], own[0].args
        for gate, act, up, down in orders(children):
            shared = self.shared.get(gate)
            steps = (
                (calls[gate].args[0], x),
                (calls[up].args[0], x),
                (calls[act].args[0], calls[gate].out),
                (calls[down].args[0], inner),
                (own[0].out, calls[down].out),
            )
            known = shared is not None and shared is self.shared.get(up) and len(shared.parts) == 2
            if not known or not all(one is other for one, other in steps):
                continue
            if {id(each) for each in factors} != {id(calls[act].out), id(calls[up].out)}:
                continue
            activation, first = self.model.get_submodule(act), self.model.get_submodule(gate)
            kind = gate_of(activation.function) if isinstance(activation, SafeActivation) else None
            if kind is not None and isinstance(first, PartOfProduct) and first.index == 0:
                assert shared is not None
                return GatedMlp(shared, self.model.get_submodule(down), kind, self.kernels)
        return None

    def put(self, path: str, module: nn.Module) -> None:
        parent, _, name = path.rpartition(".")
        owner = self.model.get_submodule(parent)
        owner._modules[name] = module.eval()
        if isinstance(module, Leaf):
            owner.__dict__[name] = module
        self.replaced.add(path)


def orders(children: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """(gate, activation, up, down) among four modules in the order of their calls."""
    a, b, c, d = children
    return [(a, b, c, d), (a, c, b, d), (b, c, a, d)]


def is_rows(shape: torch.Size) -> bool:
    """Of [1, T, n] or [T, n]."""
    return len(shape) in (2, 3)


def joined(paths: Sequence[str]) -> str:
    parent = f"{paths[0].rpartition('.')[0]}."
    return parent.removeprefix(".") + "+".join(path.rpartition(".")[2] for path in paths)
