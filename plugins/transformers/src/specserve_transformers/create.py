"""A model of transformers without weights: parameters on the device meta, buffers with their numbers.

Knows nothing of checkpoints. Errors are ModelErrors that name the file and the architecture.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedModel

from specserve.api import ModelError
from specserve_transformers.interface import NAME, register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.api.files import RawJson

PADDING = "warn_if_padding_and_no_attention_mask"


def class_of(raw: RawJson, where: str) -> type[PreTrainedModel]:
    """The class that config.json names."""
    name = next(iter(raw.get("architectures") or ["none"]))
    found = getattr(transformers, str(name), None)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        hub = "its code is on the hub (auto_map), which is not run; " if raw.get("auto_map") else ""
        raise ModelError(
            f"{where}: architecture {name}: {hub}transformers {transformers.__version__} has no such class. Install "
            "a newer transformers, or serve a model whose class it has."
        )
    if raw.get("is_encoder_decoder"):
        raise ModelError(f"{where}: architecture {name} has an encoder and a decoder; only decoders are served.")
    if not found._supports_attention_backend:
        raise ModelError(
            f"{where}: architecture {name}: its class in transformers does not call the attention interface, so that "
            "keys and values cannot lie in this engine's cache. Serve another model, or this one with transformers."
        )
    return found


def config_of(raw: RawJson, where: str) -> Any:
    """transformers' configuration."""
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ModelError(
            f"{where}: model_type {kind!r} is unknown to transformers {transformers.__version__}. Install a newer one, "
            "or correct the file."
        )
    known = {key: value for key, value in raw.items() if key != "quantization_config"}
    try:
        return CONFIG_MAPPING[kind].from_dict(known)
    except Exception as error:
        raise ModelError(f"{where}: transformers cannot read it: {error}. Correct the file.") from error


def create(found: type[PreTrainedModel], raw: RawJson, dtype: torch.dtype, where: str) -> PreTrainedModel:
    """In evaluation mode, with this module's functions for attention and experts. On the device meta, buffers too."""
    register()
    config = config_of(raw, where)
    config._attn_implementation = NAME
    if found._can_set_experts_implementation():
        config._experts_implementation = NAME
    with quiet(), torch.device("meta"):
        try:
            model: PreTrainedModel = found._from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ModelError(
                f"{where}: transformers cannot make a {found.__name__} of it: {type(error).__name__}: {error}. Correct "
                "the file."
            ) from error
    for module in model.modules():
        module.training = False
        if hasattr(module, PADDING):  # it would read tokens on the host in every step
            module.__dict__[PADDING] = no_warning
    model.requires_grad_(requires_grad=False)
    return model


def no_warning(*_: object) -> None:
    """Prompts are not padded here."""


def fill_buffers(model: PreTrainedModel, device: torch.device, where: str) -> None:
    """Give buffers that checkpoints do not hold their numbers, as transformers computes them."""
    stored = model.state_dict().keys()
    filled: dict[str, torch.Tensor] = {}
    for path, module in model.named_modules():
        names = [name for name, buffer in module._buffers.items() if buffer is not None]
        own = [name for name in names if f"{path}.{name}".removeprefix(".") not in stored]
        for name in own:
            buffer = module._buffers[name]
            assert buffer is not None
            module._buffers[name] = torch.full_like(buffer, NEVER[buffer.is_floating_point()], device="cpu")
        if own:
            with torch.no_grad():
                model._init_weights(module)  # type: ignore[no-untyped-call]
            filled |= {f"{path}.{name}": module._buffers[name] for name in own}
            for name in own:
                module._buffers[name] = module._buffers[name].to(device)
    for name, buffer in filled.items():
        unset = buffer.isnan().all() if buffer.is_floating_point() else (buffer == NEVER[False]).all()
        if buffer.numel() and buffer.dtype != torch.bool and unset:
            raise ModelError(f"{where}: transformers gives the buffer {name} no numbers. Serve another model.")


NEVER = {True: float("nan"), False: -7}
"""What no buffer holds once it has its numbers, by whether it is of a floating type."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' advice to users of its own engine."""
    log = logging.getLogger("transformers")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
