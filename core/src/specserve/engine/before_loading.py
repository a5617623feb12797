"""What is wrong with a configuration and can be told at once: before torch is imported and before a model is loaded.

Plugins that are missing or incompatible, a model that is not where it should be, files that are not there. Everything
else is found while loading, by what reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.engine.make_tokenizer import check_sampling_defaults
from specserve.model_files import read_json
from specserve.models.formats.safetensors import Safetensors
from specserve.models.locate import check_target, locate_on_disk, locate_tokenizer
from specserve.models.made_directories import holds_files
from specserve.models.weight_files import weight_files
from specserve.plugins import discovery
from specserve.plugins.best_graphs import with_best_graphs
from specserve.plugins.enabling import decide

if TYPE_CHECKING:
    from specserve.config import EngineConfig


def check_before_loading(config: EngineConfig) -> None:
    """Raises ConfigError and its kind."""
    installed = discovery.discover()
    _, decision = with_best_graphs(config, lambda tried: decide(tried, installed))
    model = locate_on_disk(config.model)
    if model is not None:  # else it has to be downloaded
        check_target(model, config.model)
        read_json(model / "config.json")
        if not (any("model.weights" in plugin.provides for plugin in decision.enabled) or holds_files(model)):
            weight_files(model, [Safetensors()])
    if config.tokenizer is not None:
        locate_tokenizer(config)
    if not isinstance(config.generation_config, str):
        check_sampling_defaults(config.generation_config)
