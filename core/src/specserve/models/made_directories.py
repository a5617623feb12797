"""Models in files of other formats, of which an installed package makes directories in Hugging Face format.

The entry-point group `specserve.model_files` has a function for each suffix: from a file, or a directory of such files,
to the model's directory. It raises ModelErrors. Knows nothing about formats.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from specserve.errors import ModelError

GROUP = "specserve.model_files"


def made_directory(path: Path) -> Path | None:
    """None where no package reads such a file, and for directories in Hugging Face format."""
    if path.is_dir():
        suffixes = set() if (path / "config.json").exists() else {file.suffix for file in path.iterdir()}
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
