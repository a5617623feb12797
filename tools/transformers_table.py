"""Writes the tables of docs/transformers.md: which of transformers' architectures were served, as what, and which not.

Every row is a small random model that is loaded here, with its self-test; the tests compare the same models with
transformers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "transformers_plugin")]

from architectures import REFUSED, SERVED, write_model  # noqa: E402
from runs import options_of  # noqa: E402

from specserve.errors import ModelError  # noqa: E402
from specserve_transformers.activations import GatedMlp  # noqa: E402
from specserve_transformers.linears import Product, SharedProduct  # noqa: E402
from specserve_transformers.norms import RowNorm  # noqa: E402
from specserve_transformers.row_safe import SafeForward  # noqa: E402
from specserve_workbench.testing.engines import make_engine  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "transformers.md"
MARKS = {"served": "<!-- served -->", "refused": "<!-- refused -->"}


def main() -> None:
    text = PAGE.read_text()
    for kind, rows in (("served", served()), ("refused", refused())):
        begin, _, rest = text.partition(MARKS[kind] + "\n")
        _, _, end = rest.partition(MARKS[kind] + "\n")
        text = f"{begin}{MARKS[kind]}\n" + "\n".join(rows) + f"\n{MARKS[kind]}\n{end}"
    PAGE.write_text(text)


def served() -> Iterator[str]:
    yield "| architecture | layers | products that are one | norms | MLP of the kernels | made safe |"
    yield "|---|---|---|---|---|---|"
    for name in sorted(SERVED):
        with tempfile.TemporaryDirectory() as folder:
            model = make_engine(write_model(Path(folder), name), **options_of()).engine.runner.model
        yield f"| `{name}` | {' | '.join(facts(model))} |"


def facts(model: Any) -> tuple[str, ...]:
    inner = model.stages.model
    modules = list(inner.modules())
    shared = {
        maps_of(each.shared.product) for each in modules if isinstance(getattr(each, "shared", None), SharedProduct)
    }
    mlps = [each for each in modules if isinstance(each, GatedMlp)]
    shared |= {maps_of(each.gate_up.product) for each in mlps}
    forms = {each.form for each in modules if isinstance(each, RowNorm)}
    norms = {"layer norm" if form.centred else "RMS norm" for form in forms}
    safe = {type(each).__name__ for each in modules if isinstance(each.__dict__.get("forward"), SafeForward)}
    layers = "of its class" if model.decoder is None else "the engine's"
    return layers, listed(shared), listed(norms), "yes" if mlps else "no", listed(safe)


def maps_of(product: Product) -> str:
    return "+".join(path.rpartition(".")[2] for path in product.projection.parts)


def listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" if name.isidentifier() or "+" in name else name for name in sorted(names)) or "-"


def refused() -> Iterator[str]:
    yield "| architecture | reason |"
    yield "|---|---|"
    for name in sorted(REFUSED):
        with tempfile.TemporaryDirectory() as folder:
            try:
                make_engine(write_model(Path(folder), name), **options_of())
            except ModelError as error:
                reason = str(error).partition(f"architecture {name}")[2].partition(" Serve another")[0]
                reason = reason.removeprefix(" is not served by transformers here").lstrip(": ").rstrip(".")
                yield f"| `{name}` | {reason} |"
            else:
                raise SystemExit(f"{name} is served")


if __name__ == "__main__":
    main()
