"""How the native plugins are compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
BUILDS = sorted(PLUGINS.glob("*/CMakeLists.txt"))


@pytest.mark.parametrize("build", BUILDS, ids=[path.parent.name for path in BUILDS])
def test_the_compiler_fuses_no_multiply_adds_by_itself(build: Path) -> None:
    """GCC does so on ARM, and numbers would be others there."""
    assert "-ffp-contract=off)" in build.read_text()


def test_there_are_native_plugins() -> None:
    assert len(BUILDS) >= 3
