"""Models in files of other formats, of which an installed package makes directories in Hugging Face format.

The entry-point group `specserve.model_files` has a function for each suffix: from a file, or a directory of such files,
to the model's directory. It raises ModelErrors. Knows nothing about formats.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

from specserve.errors import ModelError

GROUP = "specserve.model_files"
TAGGED = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*):([\w.-]+)")
"""A file of a repository of the hub, by a part of its name: `org/name-GGUF:Q4_K_M`."""
SHARD = re.compile(r"-\d+-of-\d+$")


def made_directory(path: Path) -> Path | None:
    """None where no package reads such a file, and for directories in Hugging Face format."""
    if path.is_dir():
        if (path / "config.json").exists():  # what is installed is not read for these: it takes milliseconds
            return None
        suffixes = {file.suffix for file in path.iterdir()}
    else:
        suffixes = {path.suffix}
    entry = next((each for each in entry_points(group=GROUP) if f".{each.name}" in suffixes), None)
    if entry is None:
        return None
    try:
        return Path(entry.load()(path))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"model {str(path)!r} is read by {entry.value}, which fails: {type(error).__name__}: {error}. "
            "Reinstall the package that offers it, or report this to its authors."
        ) from error


def holds_files(path: Path) -> bool:
    """Whether the model in this directory was made of such files, or has any."""
    return bool({file.suffix[1:] for file in path.iterdir()} & entry_points(group=GROUP).names)


def names_of_hub(name: str) -> tuple[str, list[str]]:
    """The repository, and patterns for the names of the files in it that are meant: none for a whole repository, and
    where no package reads such files."""
    if (match := TAGGED.fullmatch(name)) is None:
        return name, []
    hub, tag = match.groups()
    suffixes = sorted(entry_points(group=GROUP).names)
    return hub, [f"*{spelt}*.{suffix}" for suffix in suffixes for spelt in dict.fromkeys((tag, tag.lower()))]


def made_of_downloaded(name: str, path: Path, patterns: list[str]) -> Path:
    """The directory of the one model among these files of a downloaded repository. Raises ModelError."""
    found = sorted(file for pattern in patterns for file in path.rglob(pattern))
    models = {SHARD.sub("", file.stem): file for file in reversed(found)}
    if len(models) == 1 and (made := made_directory(*models.values())):
        return made
    files = ", ".join(sorted(models)) or "none"
    raise ModelError(f"model {name!r} must name the files of one model; got {files}. Name more, or less, of the file.")
