"""The text part of a model that reads images, too: where its config.json and its file have it.

A family says which classes of such models have a text part of its kind (`ModelFamily.within`). Knows nothing about what
the numbers and tensors mean.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from specserve.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.model_files import RawJson
    from specserve.models.checkpoint import Checkpoint
    from specserve.models.family import ModelFamily

log = logging.getLogger(__name__)

KEY = "text_config"
OF_ALL = ("dtype", "torch_dtype", "eos_token_id", "quantization_config", "tie_word_embeddings", "transformers_version")
"""Keys that count for the text part, wherever they stand; outside they have priority."""
DRAFTS = ("mtp.", "model.mtp_layers.")
"""How names of a block that drafts begin, which stands beside a text model and is no part of it."""
PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
    "language_model.": "model.",
}
"""How names of its tensors begin, and what a text model has instead; the first that fits."""


def flat(raw: RawJson, families: Sequence[ModelFamily], where: str) -> RawJson:
    """config.json as a text model of the same kind would have it. Raises ModelError where no family has this text
    part."""
    inner, named = raw.get(KEY), raw.get("architectures") or []
    if not isinstance(inner, dict) or any(name in family.architectures for family in families for name in named):
        return raw
    outer = next((name for family in families for name in family.within if name in named), None)
    fitting = [family for family in families if outer in family.within]
    kind = inner.get("model_type", fitting[0].name if fitting else None)
    for family in fitting:
        if family.name == kind:
            outside = {key: raw[key] for key in OF_ALL if raw.get(key) is not None}
            own = {"architectures": list(family.architectures[:1]), "model_type": family.name}
            return {"tie_word_embeddings": True, **inner, **outside, **own}
    served = ", ".join(f"{name} ({family.name})" for family in families for name in family.within)
    raise ModelError(
        f"{where}: {', '.join(map(str, named)) or raw.get('model_type')} also reads images or sound, and its text part "
        f"of type {kind!r} is not served. Text parts are served of {served}. Pass one of these, or a text model."
    )


def keep_text(checkpoint: Checkpoint) -> None:
    """Give the tensors of the text part the names of a text model, and take no notice of the others, but for one line
    in the log."""
    others: Counter[str] = Counter()
    for name in sorted(checkpoint.names):
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
        if prefix is not None:
            checkpoint.rename(name, PREFIXES[prefix] + name.removeprefix(prefix))
        elif not name.startswith("lm_head."):
            if not name.startswith(DRAFTS):
                others[name.removeprefix("model.").partition(".")[0]] += 1
            checkpoint.forget(name)
    found = ", ".join(f"{count} of {part}" for part, count in sorted(others.items()))
    log.warning(
        "%s: the text part of a model that also reads images is served; image input is not%s",
        checkpoint.path,
        f". Tensors that are not read: {found}" if found else "",
    )
