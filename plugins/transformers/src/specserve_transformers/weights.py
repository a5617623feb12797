"""Which tensors of a checkpoint make which parameters, by transformers' own rules, and what is missing or left over.

transformers renames tensors of older files, and stacks or cuts others (experts, for one). Names and shapes are checked
before anything is read.
"""

from __future__ import annotations

import logging
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

from specserve.api import ModelError
from specserve.api.models import QuantisedWeight, dense
from specserve_transformers.create import quiet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from transformers import PreTrainedModel

    from specserve.api.models import LoadRequest

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 4096
"""How many tokens' rows are compared at once."""
NAMED = 5
"""Names in a message."""
IGNORED = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached", ".masked_bias", ".attn.bias")
"""What old exporters write beside the weights; it holds nothing new."""
IN_DRAFTING_LAYER = "eh_proj.weight"
"""What no layer has but one that drafts (MTP), which the plugin eagle reads."""


class Converted(NamedTuple):
    """Tensors that a converter makes one or several parameters of: (its pattern, the tensor's name)."""

    converter: Any
    first: str
    stored: list[tuple[str, str]]


class WeightPlan:
    """Of one model. `stored`: by parameter, the tensor that it is; others are `converted`. `tied`: by parameter that no
    tensor makes, the one whose numbers it has."""

    def __init__(self, model: PreTrainedModel, request: LoadRequest) -> None:
        self.model, self.request, self.checkpoint = model, request, request.open_checkpoint()
        self.wanted = model.state_dict()
        self.stored: dict[str, str] = {}
        self.converted: dict[str, Converted] = {}
        self.made: dict[str, Tensor] = {}
        left_over = self.sort_names()
        self.tied = self.find_tied()
        self.check_missing()
        self.check_left_over(left_over)
        self.check_shapes()

    def sort_names(self) -> list[str]:
        """Fills `stored` and `converted`; the names that nothing reads."""
        model, left_over = self.model, []
        with quiet():
            mapping = get_model_conversion_mapping(model)
        renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
        converters = [each for each in mapping if isinstance(each, WeightConverter)]
        by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
        prefix = model.base_model_prefix
        for name in sorted(self.checkpoint.names, key=dot_natural_key):
            target, pattern = rename_source_key(name, renamings, converters, prefix, self.wanted)
            if target not in self.wanted and name in self.wanted:
                target, pattern = name, None
            if target not in self.wanted:
                left_over.append(name)
            elif pattern is None:
                self.stored[target] = name
            else:
                found = self.converted.setdefault(target, Converted(deepcopy(by_pattern[pattern]), target, []))
                found.stored.append((pattern, name))
        return left_over

    def find_tied(self) -> dict[str, str]:
        pairs = dict(getattr(self.model, "all_tied_weights_keys", None) or {})
        tied = {}
        for target, source in pairs.items():
            if not self.has(target) and self.has(source):
                tied[target] = source
            elif self.has(target) and not self.has(source):
                tied[source] = target
            elif self.is_twice(target, source):
                del self.stored[target]
                tied[target] = source
        return tied

    def is_twice(self, target: str, source: str) -> bool:
        """Whether the file holds one matrix under both names. Another head is read as it is, as transformers does."""
        names = self.stored.get(target), self.stored.get(source)
        if names[0] is None or names[1] is None:
            return False
        first, second = (self.checkpoint.find(name) for name in names if name is not None)
        if first.shape != second.shape or first.quantised or second.quantised:
            return False
        places = (slice(begin, begin + ROWS_AT_ONCE) for begin in range(0, first.shape[0], ROWS_AT_ONCE))
        return all(
            torch.equal(*(dense(self.checkpoint.rows(name, place)) for name in names if name is not None))
            for place in places
        )

    def has(self, name: str) -> bool:
        return name in self.stored or any(name in self.targets_of(each) for each in self.converted.values())

    def targets_of(self, each: Converted) -> list[str]:
        """The parameters that a converter makes."""
        first = next((p for p in each.converter.target_patterns if plain(p) in each.first), None)
        if first is None:
            return [each.first]
        return [each.first.replace(plain(first), plain(pattern)) for pattern in each.converter.target_patterns]

    def check_missing(self) -> None:
        ignored = [re.compile(each) for each in self.model._keys_to_ignore_on_load_missing or ()]
        missing = [
            name
            for name in self.wanted
            if not (self.has(name) or name in self.tied or any(each.search(name) for each in ignored))
        ]
        if missing:
            raise ModelError(
                f"{self.checkpoint.path}: {listed(missing)} {'is' if len(missing) == 1 else 'are'} missing; "
                f"{len(self.checkpoint.names)} others are there. The weights and config.json are not of the same "
                "model, or a file is missing. Download the model again."
            )

    def check_left_over(self, found: Iterable[str]) -> None:
        """What stands within a module that is served would change it."""
        ignored = [re.compile(each) for each in self.model._keys_to_ignore_on_load_unexpected or ()]
        names = list(found)
        drafting = tuple(name.removesuffix(IN_DRAFTING_LAYER) for name in names if name.endswith(IN_DRAFTING_LAYER))
        modules = {name.rpartition(".")[0] for name in self.wanted}
        prefix = f"{self.model.base_model_prefix}."
        unknown = [
            name
            for name in names
            if not name.endswith(IGNORED) and not name.startswith(drafting) and not any(e.search(name) for e in ignored)
        ]
        foreign = [
            name
            for name in unknown
            if {name.rpartition(".")[0], prefix + name.rpartition(".")[0]} & modules and not self.is_neutral(name)
        ]
        if foreign:
            raise ModelError(
                f"{self.checkpoint.path}: {listed(foreign)} would change what the model computes, and "
                f"{type(self.model).__name__} of transformers, with the settings of config.json, has no place for "
                f"{'it' if len(foreign) == 1 else 'them'}. Correct config.json, or use weights of that architecture."
            )
        if unknown:
            log.warning("%s: %s: not used by %s", self.checkpoint.path, listed(unknown), type(self.model).__name__)

    def is_neutral(self, name: str) -> bool:
        """A bias of zeros adds nothing."""
        return name.endswith(".bias") and not dense(self.checkpoint.rows(name)).any()

    def check_shapes(self) -> None:
        expected = {}
        for target, name in self.stored.items():
            found = self.checkpoint.find(name)
            integral = not self.wanted[target].is_floating_point()
            if not integral:
                expected[name] = tuple(self.wanted[target].shape)
            elif found.shape != tuple(self.wanted[target].shape):
                raise ModelError(
                    f"{found.file}: tensor {name} has shape {list(found.shape)}, but config.json says "
                    f"{list(self.wanted[target].shape)}. The weights and config.json are not of the same model."
                )
        self.checkpoint.check(expected)

    def take(self, target: str) -> Tensor | QuantisedWeight:
        """The numbers of a parameter, in its dtype on the device. Those that a converter makes are made once."""
        target = self.tied.get(target, target)
        if target in self.stored:
            read = self.checkpoint.take(self.stored[target])
            if isinstance(read, QuantisedWeight):
                return read._replace(dtype=self.request.dtype).on(self.request.device)
            return read.to(self.request.device, self.dtype_of(target))
        if target not in self.made:
            self.convert(target)
        made = self.made.pop(target)
        if target in self.tied.values():
            self.made[target] = made
        return made

    def convert(self, target: str) -> None:
        found = next(each for each in self.converted.values() if target in self.targets_of(each))
        for pattern, name in found.stored:
            tensor = dense(self.checkpoint.take(name)).to(self.dtype_of(found.first))
            found.converter.add_tensor(found.first, name, pattern, tensor)
        made = found.converter.convert(found.first, model=self.model, config=self.model.config)
        for name, value in made.items():
            tensor = value[0] if isinstance(value, list) else value
            wanted = tuple(self.wanted[name].shape)
            if tuple(tensor.shape) != wanted:
                raise ModelError(
                    f"{self.checkpoint.path}: the tensors of {name} make one of shape {list(tensor.shape)}, but "
                    f"config.json says {list(wanted)}. The weights and config.json are not of the same model."
                )
            self.made[name] = tensor.to(self.request.device)

    def dtype_of(self, target: str) -> torch.dtype:
        """That of the parameter, and float32 where transformers keeps it so."""
        kind = self.wanted[target].dtype
        strict = self.model._keep_in_fp32_modules_strict or ()
        kept = [*strict, *(self.model._keep_in_fp32_modules or () if kind == torch.float16 else ())]
        parts = target.split(".")
        wide = any(name in parts or f".{name}." in f".{target}." for name in kept)
        return torch.float32 if wide and kind in (torch.float16, torch.bfloat16) else kind


def plain(pattern: str) -> str:
    """What a converter's pattern adds to names."""
    return pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")


def listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{'tensor' if len(names) == 1 else 'tensors'} {', '.join(names[:NAMED])}{more}"
