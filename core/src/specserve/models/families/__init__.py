"""The engine's own families of decoders, a file each, and how a checkpoint's family is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.families.gemma2 import Gemma2
from specserve.models.families.gemma3 import Gemma3
from specserve.models.families.gemma4 import Gemma4
from specserve.models.families.glm4_moe import Glm4Moe
from specserve.models.families.gpt_oss import GptOss
from specserve.models.families.granite import Granite
from specserve.models.families.granitemoe import GraniteMoe
from specserve.models.families.granitemoeshared import GraniteMoeShared
from specserve.models.families.lfm2 import Lfm2
from specserve.models.families.lfm2_moe import Lfm2Moe
from specserve.models.families.lfm3 import Lfm3
from specserve.models.families.llama import Llama
from specserve.models.families.mimo import Mimo
from specserve.models.families.ministral import Ministral, Ministral3
from specserve.models.families.mistral import Mistral
from specserve.models.families.mixtral import Mixtral
from specserve.models.families.olmo2 import Olmo2
from specserve.models.families.olmo3 import Olmo3
from specserve.models.families.olmoe import Olmoe
from specserve.models.families.phi3 import Phi3
from specserve.models.families.qwen2 import Qwen2
from specserve.models.families.qwen2_moe import Qwen2Moe
from specserve.models.families.qwen3 import Qwen3
from specserve.models.families.qwen3_5 import Qwen35
from specserve.models.families.qwen3_5_moe import Qwen35Moe
from specserve.models.families.qwen3_moe import Qwen3Moe
from specserve.models.families.smollm3 import SmolLM3

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.model_files import RawJson
    from specserve.models.family import ModelFamily

BUILT_IN: tuple[ModelFamily, ...] = (
    Llama(), Mistral(), Qwen2(), Qwen3(), Gemma2(), Gemma3(), Granite(), Ministral(), Ministral3(), Olmo2(), Olmo3(),
    Phi3(), SmolLM3(), GptOss(), GraniteMoe(), Mixtral(), Olmoe(), Qwen3Moe(), Lfm2(), Lfm2Moe(), Lfm3(), Qwen35(),
    Qwen35Moe(), Qwen2Moe(), GraniteMoeShared(), Glm4Moe(), Mimo(), Gemma4(),
)  # fmt: skip
ARCHITECTURES = {architecture: family for family in BUILT_IN for architecture in family.architectures}


def family_named(name: str, families: Sequence[ModelFamily] = BUILT_IN) -> ModelFamily:
    """The one of which a `ModelConfig.family` is the name."""
    return next(family for family in families if family.name == name)


def family_of(raw: RawJson, families: Sequence[ModelFamily], where: str) -> ModelFamily:
    """raw: config.json. An architecture has the last word; without any, `model_type` says it."""
    names = raw.get("architectures") or []
    by_architecture = {name: family for family in families for name in family.architectures}
    for name in names:
        if name in by_architecture:
            return by_architecture[name]
    by_name = {family.name: family for family in families}
    if not names and raw.get("model_type") in by_name:
        return by_name[raw["model_type"]]
    raise ModelError(
        f"{where}: architecture {', '.join(map(str, names)) or raw.get('model_type')!r} is not supported. "
        f"Supported: {', '.join(by_architecture)}. The plugin transformers serves many others: "
        "pip install specserve-plugin-transformers, and do not switch it off."
    )
