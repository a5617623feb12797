"""Says what `make gpu-check` lacks here, before pytest makes skips and import errors of it. Exit code 1 if anything."""

from __future__ import annotations

import importlib
import importlib.util
import sys

NEEDED = "pytest torch triton transformers msgspec pluggy tokenizers safetensors jinja2 numpy specserve specserve_demo"
OPTIONAL = ("cupy", "flashinfer")


def version(name: str) -> str | None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        print(f"gpu-check: cannot import {name}: {error}", file=sys.stderr)
        return None
    return f"{name} {getattr(module, '__version__', '')}".strip()


def main() -> int:
    found = [version(name) for name in NEEDED.split()]
    if None in found:
        print("gpu-check: see docs/gpu.md for how to bring packages to a machine without network", file=sys.stderr)
        return 1
    print("gpu-check:", ", ".join(filter(None, found)))
    for name in OPTIONAL:
        if importlib.util.find_spec(name) is None:
            print(f"gpu-check: {name} is not installed here: what the plugin cuda does with it will be skipped")
    import torch

    if not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} sees no CUDA device here; nothing was checked", file=sys.stderr)
        return 1
    print(f"gpu-check: {torch.cuda.get_device_name()}, compute capability {torch.cuda.get_device_capability()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
