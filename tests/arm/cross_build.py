"""The native plugins and the stress program of the cpu plugin, compiled for aarch64 by CMake.

A plugin's package in build/arm/plugins is its sources, linked, beside the module that was built.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

import nanobind
from made import contents, once
from places import BUILD, NATIVE, OVERLAY, PURE, ROOT, STRESS, SYSROOT, python_version
from tools import PrepareError, gpp

HERE = Path(__file__).parent
CMAKE, NINJA = (Path(sys.executable).parent / name for name in ("cmake", "ninja"))
STRESS_FLAGS = ("-std=c++20", "-O1", "-ffp-contract=off")


def make() -> None:
    OVERLAY.mkdir(parents=True, exist_ok=True)
    for name in NATIVE:
        once(BUILD / name, [sources_of(name), compiler(), python_version()], partial(build, name))
        link(name)
    link_metadata()
    once(STRESS, [sources_of("cpu"), STRESS_FLAGS, compiler()], lambda: build_stress(ROOT / "plugins/cpu/native"))


def sources_of(name: str) -> str:
    """A hash of what a plugin's library is built of, and how."""
    plugin = ROOT / "plugins" / name
    return contents(plugin / "CMakeLists.txt", plugin / "native", HERE / "aarch64.cmake")


def compiler() -> str:
    resolved = gpp().resolve()
    return f"{resolved} {resolved.stat().st_mtime_ns}"


def build(name: str) -> None:
    print(f"== compiling the {name} plugin for aarch64", flush=True)
    folder = BUILD / name
    options = {
        "CMAKE_TOOLCHAIN_FILE": HERE / "aarch64.cmake",
        "CMAKE_MAKE_PROGRAM": NINJA,
        "CMAKE_CXX_FLAGS": f"-idirafter {SYSROOT}/usr/include",
        "Python_EXECUTABLE": sys.executable,
        "Python_INCLUDE_DIR": SYSROOT / "usr" / "include" / f"python{python_version()}",
        "nanobind_DIR": nanobind.cmake_dir(),
    }
    defined = [f"-D{key}={value}" for key, value in options.items()]
    run([CMAKE, "-G", "Ninja", "-S", ROOT / "plugins" / name, "-B", folder, *defined])
    run([CMAKE, "--build", folder])


def build_stress(native: Path) -> None:
    """Of the library that the plugin was built of."""
    print("== compiling the stress program of the cpu plugin for aarch64", flush=True)
    objects = {path: STRESS / f"{path.stem}.o" for path in (native / "stress").glob("*.cpp")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        commands = [[gpp(), *STRESS_FLAGS, "-I", native, "-c", path, "-o", made] for path, made in objects.items()]
        list(pool.map(run, commands))
    library = BUILD / "cpu" / "libcpu_kernels.a"
    run([gpp(), "-pthread", *objects.values(), library, "-o", STRESS / "stress"])


def run(command: list[object]) -> None:
    made = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise PrepareError(f"this failed: {' '.join(map(str, command))}\n{made.stdout}{made.stderr}")


def link(name: str) -> None:
    """As a package of its own: the one in the sources has no module for aarch64 beside it."""
    sources = ROOT / "plugins" / name / "src" / f"specserve_{name}"
    package = OVERLAY / sources.name
    package.mkdir(exist_ok=True)
    for path in package.iterdir():
        if path.is_symlink():
            path.unlink()
    (module,) = (BUILD / name).glob("_native*.so")
    for path in sources.iterdir():
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path)
    # CMake names it for the Python that builds
    (package / "_native.so").symlink_to(module)


def link_metadata() -> None:
    """Of the distributions that are read here: their entry points name plugins."""
    installed = Path(str(metadata.distribution("specserve-core").locate_file("")))
    for folder in (*PURE, *(f"plugins/{name}" for name in NATIVE)):
        name = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["name"]
        (path,) = installed.glob(f"{name.replace('-', '_')}-*.dist-info")
        linked = OVERLAY / path.name
        linked.unlink(missing_ok=True)
        linked.symlink_to(path)
