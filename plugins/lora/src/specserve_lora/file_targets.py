"""Which targets of a configuration a weights file has, and that it has their tensors and no others.

A configuration names some modules twice, and some that the adapter does not have: where experts are parameters, as in
transformers 5, `gate_proj` in `target_modules` reached none of them, and with transformers 4 all. The file decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_lora.errors import AdapterError
from specserve_lora.modules import EXPERT, ROUTER, SHARED_EXPERT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_lora.safetensors_file import SafetensorsFile
    from specserve_lora.targets import Target

PREFIX = "base_model.model."


def tensor_names(target: Target) -> tuple[str, str]:
    """Names in the file of down and up."""
    return f"{PREFIX}{target.stem}.lora_A.weight", f"{PREFIX}{target.stem}.lora_B.weight"


class ChangedOutputs:
    """Which outputs of projections are changed, and by which target."""

    def __init__(self) -> None:
        self.by_projection: dict[str, list[tuple[slice, Target]]] = {}

    def find(self, target: Target) -> Target | None:
        """One that changes an output of this target, too."""
        for projection, outs, _ in target.module.places:
            for changed, other in self.by_projection.get(projection, ()):
                if changed.start < outs.stop and outs.start < changed.stop:
                    return other
        return None

    def add(self, target: Target) -> None:
        for projection, outs, _ in target.module.places:
            self.by_projection.setdefault(projection, []).append((outs, target))


def targets_in(file: SafetensorsFile, candidates: Sequence[Target]) -> list[Target]:
    """Those that the adapter changes, each by one name. Raises AdapterError where there are none, and where an output
    is changed twice."""
    there = [target for target in candidates if any(name in file.entries for name in tensor_names(target))]
    changed, kinds = ChangedOutputs(), {kind_of(target) for target in there}
    for target in there:
        if other := changed.find(target):
            raise AdapterError(
                f"{file.source} changes {other.module.places[0].projection} twice: as {other.module.key} and as "
                f"{target.module.key}. Name each module once, in target_modules or in target_parameters.",
                param="lora_path",
            )
        changed.add(target)
    for target in candidates:
        if kind_of(target) in (*kinds, None) and not changed.find(target):
            there.append(target)
            changed.add(target)
    if not there:
        raise AdapterError(
            f"{file.source} has no tensors of the modules that adapter_config.json targets. The two files are not of "
            "the same adapter, or it was trained for another model.",
            param="lora_path",
        )
    return there


def kind_of(target: Target) -> str | None:
    """What transformers 5 has as parameters, or as maps of other names, where `target_modules` names it."""
    own = target.module.places[0].projection.split(".")[2:3]
    return own[0] if own in ([EXPERT], [ROUTER], [SHARED_EXPERT]) and not target.is_parameter else None


def check_tensors(file: SafetensorsFile, targets: Sequence[Target]) -> None:
    """The file holds exactly the targets' pairs, in the shapes that model and configuration require."""
    expected = {name for target in targets for name in tensor_names(target)}
    for target in targets:
        check_pair(file, target)
    if extra := sorted(file.entries.keys() - expected):
        raise AdapterError(
            f"{file.source} has {len(extra)} tensors that cannot be served, the first is {extra[0][:200]}: "
            f"{reason_unsupported(extra[0])}.",
            param="lora_path",
        )


def check_pair(file: SafetensorsFile, target: Target) -> None:
    module, count = target.module, len(target.module.places)
    rank = target.rank * count
    shapes = ([rank, module.in_features], [module.out_features, rank])
    said = f"rank {target.rank} of {count} experts" if count > 1 else "rank"
    for name, shape in zip(tensor_names(target), shapes, strict=True):
        entry = file.entries.get(name)
        if entry is None:
            raise AdapterError(
                f"{file.source}: tensor {name} is missing, though adapter_config.json targets its module. The two "
                "files are not of the same adapter, or it was trained for another model.",
                param="lora_path",
            )
        if entry.shape != shape:
            raise AdapterError(
                f"{file.source}: tensor {name} has shape {entry.shape}; {said} and model say {shape}. The two files "
                "are not of the same adapter, or it was trained for another model.",
                param="lora_path",
            )


def reason_unsupported(name: str) -> str:
    for infix, reason in (
        ("lora_embedding_", "LoRA of embeddings is not supported"),
        ("lora_magnitude_vector", "DoRA is not supported"),
        ("lm_head.", "adapters of lm_head are not supported"),
        (".bias", "biases are not supported"),
    ):
        if infix in name:
            return reason
    return "adapter_config.json targets no such module of this model"
