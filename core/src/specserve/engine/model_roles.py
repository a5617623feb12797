"""What plugins' hooks return so that a model can be read: families, libraries and formats, checked and guarded.

Knows nothing of what reads a model; `specserve.engine.roles` has the hooks that are called later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.config import EngineConfig
from specserve.errors import PluginError
from specserve.guards.family import GuardedFamily
from specserve.guards.library import GuardedLibrary
from specserve.guards.weight_format import guarded
from specserve.models.family import ModelFamily
from specserve.models.library import ModelLibrary, library_of
from specserve.models.loader import ModelLoader
from specserve.models.part import WHOLE_MODEL, ModelPart
from specserve.models.weight_format import QuantMethod, WeightFiles, WeightFormat
from specserve.plugins import discovery
from specserve.plugins.host import PluginHost
from specserve.plugins.interface_checks import as_list, check_extends, check_members, check_type
from specserve.plugins.loaded_plugin import BUILTIN

if TYPE_CHECKING:
    from pathlib import Path

READ_WEIGHTS = {"model.weights", "model.files", "model.quantised"}
READ_MODELS = READ_WEIGHTS | {"model.family", "model.library"}


def collect_families(config: EngineConfig, host: PluginHost) -> list[ModelFamily]:
    """The engine's families and those of plugins. Refuses two for one architecture or name."""
    families: list[ModelFamily] = []
    owners: dict[str, str] = {}
    for owner, answer in host.collect("model_families", config=config):
        for family in as_list(owner, "model_families", answer):
            found = f"has a {type(family).__name__} among its model_families"
            check_extends(owner, found, family, ModelFamily)
            check_members(owner, found, family, "ModelFamily", attributes=("name", "architectures"))
            check_type(owner, "its family's name", family.name, str)
            check_type(owner, "its family's architectures", family.architectures, tuple)
            for name in {family.name, *family.architectures}:
                refuse_two(owners, owner, found, name)
            families.append(family if owner == BUILTIN else GuardedFamily(owner, family))
    return families


def collect_formats(config: EngineConfig, host: PluginHost) -> list[WeightFormat]:
    """The engine's formats of weights and those of plugins. Refuses two of one name."""
    formats: list[WeightFormat] = []
    owners: dict[str, str] = {}
    for owner, answer in host.collect("weight_formats", config=config):
        for each in as_list(owner, "weight_formats", answer):
            found = f"has a {type(each).__name__} among its weight_formats"
            check_extends(owner, found, each, QuantMethod if isinstance(each, QuantMethod) else WeightFiles)
            check_members(owner, found, each, "WeightFormat", attributes=("name",))
            check_type(owner, "its format's name", each.name, str)
            if isinstance(each, WeightFiles):
                check_members(owner, found, each, "WeightFiles", attributes=("patterns",))
                check_type(owner, "its format's patterns", each.patterns, tuple)
            refuse_two(owners, owner, found, each.name)
            formats.append(each if owner == BUILTIN else guarded(owner, each))
    return formats


def installed_formats() -> list[WeightFormat]:
    """Those that installed plugins read, and the engine's: for files beside the model, such as those of a draft head,
    which are read before an engine is made, and by commands that make none. Raises PluginError."""
    host = host_of(READ_WEIGHTS)
    return collect_formats(host.config, host)


def installed_loader(path: Path) -> ModelLoader:
    """For the model in directory `path`, by whatever the engine and installed plugins read: for commands that make no
    engine. Raises ModelError and PluginError."""
    host = host_of(READ_MODELS)
    families = collect_families(host.config, host)
    served_by = library_of(path, families, collect_libraries(host.config, host))
    return ModelLoader(families, collect_formats(host.config, host), served_by=served_by)


def host_of(features: set[str]) -> PluginHost:
    """Of installed plugins that provide one of these."""
    names = [name for name, plugin in discovery.discover().items() if features & {*plugin.provides}]
    return PluginHost.start(EngineConfig(model="", plugins=tuple(names), default_plugins=False))


def collect_libraries(config: EngineConfig, host: PluginHost) -> list[ModelLibrary]:
    """Plugins' libraries of whole models, guarded. Refuses two of one name."""
    libraries: list[ModelLibrary] = []
    owners: dict[str, str] = {}
    for owner, answer in host.collect("model_libraries", config=config):
        for library in as_list(owner, "model_libraries", answer):
            found = f"has a {type(library).__name__} among its model_libraries"
            check_extends(owner, found, library, ModelLibrary)
            check_members(owner, found, library, "ModelLibrary", attributes=("name",))
            check_type(owner, "its library's name", library.name, str)
            refuse_two(owners, owner, found, library.name)
            libraries.append(GuardedLibrary(owner, library))
    return libraries


def make_part(config: EngineConfig, host: PluginHost) -> ModelPart:
    """A plugin's part of the model, or all of it."""
    answer: tuple[str, ModelPart] | None = host.single("make_model_part", config=config)
    if answer is None:
        return WHOLE_MODEL
    owner, part = answer
    check_extends(owner, f"answers make_model_part with a {type(part).__name__}", part, ModelPart)
    return part


def refuse_two(owners: dict[str, str], owner: str, found: str, name: str) -> None:
    """PluginError where another owner has the name already."""
    if (other := owners.setdefault(name, owner)) != owner:
        raise PluginError(
            f"{owner} {found} for {name}, which {'the engine' if other == BUILTIN else other} serves. "
            f"Remove it there, or remove --plugin {owner}."
        )
