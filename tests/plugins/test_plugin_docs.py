"""docs/plugins.md is held against the code that it describes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from specserve import hookspecs
from specserve.plugins.features import FEATURES
from specserve.plugins.hook_checks import HOOK_ARGUMENTS

DOCS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def signature(hook: str) -> str:
    """As written in hookspecs.py: annotations are strings there."""
    spec = inspect.signature(getattr(hookspecs, hook))
    arguments = ", ".join(f"{name}: {p.annotation}" for name, p in spec.parameters.items())
    return f"{hook}({arguments}) -> {spec.return_annotation}"


def test_the_documented_hooks_are_the_hooks_with_their_signatures_in_their_order() -> None:
    headings = re.findall(r"^### `(.*->.*)`$", DOCS, flags=re.MULTILINE)
    assert headings == [signature(hook) for hook in HOOK_ARGUMENTS]


@pytest.mark.parametrize("hook", HOOK_ARGUMENTS)
def test_the_text_about_a_hook_begins_with_its_docstring(hook: str) -> None:
    assert f"`\n\n{getattr(hookspecs, hook).__doc__}\n" in DOCS.partition(f"### `{hook}(")[2]


@pytest.mark.parametrize("token", FEATURES)
def test_every_feature_has_a_row_with_its_meaning(token: str) -> None:
    assert f"| `{token}` | {FEATURES[token]} |" in DOCS
