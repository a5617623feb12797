"""From the name of a model to its directory.

Owns the three places where a name is looked up: the entry-point group `specserve.models`, the file system, the hub.
Knows nothing about what is in the directory.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from specserve.errors import ConfigError, ModelError
from specserve.models.directory_kinds import refuse_other_kinds
from specserve.models.file_formats import ORIGINAL, RECIPES, format_of
from specserve.models.foreign_names import foreign_name
from specserve.models.hub_errors import hub_message
from specserve.models.made_directories import made_directory, made_of_downloaded, names_of_hub
from specserve.models.safetensors_header import tensor_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specserve.config import EngineConfig

GROUP = "specserve.models"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
OF_FILES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx", ".json")
"""So no name of the hub ends: it is a path with a mistake in it."""
HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]
"""What is downloaded: never pickles, never code."""


DESCRIBING = ("config.json", "adapter_config.json", "model_index.json", "params.json", "modules.json")
"""The files that tell what a directory holds."""


def locate_model(name: str, weights: Sequence[str] = ()) -> Path:
    """The directory of the model `name`: a name that an installed package offers, a directory, or a hub id.

    weights: patterns of files that are downloaded from the hub besides those that the engine reads itself.
    An offered name wins over a directory of that name, so that the default model does not depend on the working
    directory. Offered names have no slash: `./demo` means the directory.
    """
    return locate_on_disk(name) or _download(name, weights)


def locate_on_disk(name: str) -> Path | None:
    """As `locate_model`; None for a hub id, which may have to be downloaded."""
    path = Path(name).expanduser()
    is_dir = path.is_dir()
    if is_dir and "/" in name:
        return made_directory(path) or path
    offered = entry_points(group=GROUP)
    if name in offered.names:
        return _offered(offered[name])
    if is_dir:
        return made_directory(path) or path
    if path.exists():
        if made := made_directory(path):
            return made
        raise ModelError(f"model {name!r} is {file_given(path)}")
    if (HUB_ID.fullmatch(name) and path.suffix.lower() not in OF_FILES) or names_of_hub(name)[1]:
        return None
    if told := foreign_name(name):
        raise ModelError(f"model {name!r} is not served: {told}.")
    known = ", ".join(sorted(offered.names)) or "none installed"
    raise ModelError(
        f"no model {name!r}: there is no such directory, and no installed package offers the name (known: {known})"
        f"{nearest(name, offered.names) or '.'} "
        "Pass a directory in Hugging Face format, a known name, or a hub id such as org/name."
    )


def nearest(name: str, known: Iterable[str]) -> str:
    found = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def locate_target(name: str, weights: Sequence[str] = ()) -> Path:
    """As `locate_model`, for a model that is served: ModelError for an adapter, a draft head and other kinds."""
    path = locate_model(name, weights)
    check_target(path, name)
    return path


def check_target(path: Path, name: str) -> None:
    """ModelError where the directory of `name` holds something else than a model that is served."""
    offered = () if "/" in name else entry_points(group=GROUP).names
    beside = [other for other in offered if name in offered and name.startswith(f"{other}-")]
    refuse_other_kinds(path, name, max(beside, key=len, default="TARGET"))


def file_given(path: Path) -> str:
    """What a file is that was given as a model, after "is", and what to do."""
    try:
        found = format_of(path)
    except OSError as error:
        return f"a file that cannot be read: {error.strerror or error}."
    if found is not None:
        return f"{found.what}. {found.advice}."
    folder = path.resolve().parent
    if (folder / "config.json").exists():
        return f"a file. Pass the directory that holds it, with its config.json: {folder}."
    if path.suffix == ".safetensors":
        if any("lora_" in tensor for tensor in tensor_names(path)):
            return (
                f"a file of an adapter's weights. Merge it into its model, or serve it with --plugin lora: {RECIPES}."
            )
        return f"a file of weights, and {folder} has no config.json. {ORIGINAL}."
    return f"a file and not a model. {ORIGINAL}, and pass their directory."


def locate_tokenizer(config: EngineConfig) -> Path:
    """The directory of the tokenizer: the model's, unless another one is configured."""
    if config.tokenizer is None:
        return locate_model(config.model)
    path = Path(config.tokenizer).expanduser()
    if not path.is_dir():
        raise ConfigError(f"tokenizer: there is no directory {path}. Pass one with a tokenizer.json, or leave it out.")
    return path


def _offered(entry: EntryPoint) -> Path:
    """An entry point is a Path, or a function that returns one."""
    try:
        target = entry.load()
        path = Path(target() if callable(target) else target)
    except Exception as error:
        raise ModelError(
            f"model {entry.name!r} is offered by {entry.value}, which fails: {type(error).__name__}: {error}. "
            "Reinstall the package that offers it."
        ) from error
    if not path.is_dir():
        raise ModelError(
            f"model {entry.name!r} is offered by {entry.value}, but its directory {path} does not exist. "
            "Reinstall the package that offers it."
        )
    return path


def _download(name: str, weights: Sequence[str]) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(
            f"model {name!r} is not a directory here, and downloading it from the hub needs huggingface_hub. "
            "Run pip install 'specserve[hub]', or pass the directory of a downloaded model."
        ) from None
    hub, files = names_of_hub(name)
    try:
        path = Path(snapshot_download(hub, allow_patterns=files or [*HUB_FILES, *weights]))
    except Exception as error:  # the hub's own tree of errors, plus whatever its HTTP client raises
        raise ModelError(hub_message(name, error)) from error
    if files:
        return made_of_downloaded(name, path, files)
    if not any((path / file).exists() for file in DESCRIBING):
        raise ModelError(
            f"model {name!r} of the hub has no config.json. It holds another format, such as GGUF, or no model. "
            f"{ORIGINAL}. Of GGUF files, name one: {name}:Q4_K_M."
        )
    return path


def locate_downloaded(name: str) -> Path | None:
    """The directory of a hub id whose files were downloaded before; None where they were not. Uses no network."""
    try:
        from huggingface_hub import snapshot_download

        hub, files = names_of_hub(name)
        path = Path(snapshot_download(hub, allow_patterns=files or HUB_FILES, local_files_only=True))
        return made_of_downloaded(name, path, files) if files else path
    except Exception:  # it is not installed, or what it raises where files are missing
        return None
