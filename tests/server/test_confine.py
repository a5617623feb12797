"""Paths that clients name stay inside the operator's directory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from specserve.confine import OutsideRootError, UnusablePathError, find_root, resolve_inside
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root-beside").mkdir()
    (tmp_path / "root" / "inside").symlink_to(tmp_path / "root" / "a")
    (tmp_path / "root" / "outside").symlink_to(tmp_path / "root-beside")
    (tmp_path / "root" / "up").symlink_to("..")
    (tmp_path / "root" / "loop").symlink_to("loop")
    found = find_root("x.root", str(tmp_path / "root"))
    assert found is not None
    return found


@pytest.mark.parametrize("path", ["a", "a/b", "./a//b/", "a/../a", ".", "inside/b", "none", "~", "a/b/../../none"])
def test_a_path_inside_is_resolved_whether_or_not_it_exists(root: Path, path: str) -> None:
    assert resolve_inside(path, root, "x.root") == (root / path).resolve()


def test_an_absolute_path_inside_is_resolved(root: Path) -> None:
    assert resolve_inside(str(root / "a"), root, "x.root") == root / "a"
    assert resolve_inside(root / "inside", root, "x.root") == root / "a"


@pytest.mark.parametrize("path", [
    "..", "../root-beside", "a/../../root-beside", "/", "/etc/passwd", "outside", "outside/x", "up", "up/root-beside",
])  # fmt: skip
def test_a_path_outside_is_refused(root: Path, path: str) -> None:
    with pytest.raises(OutsideRootError, match=r"is not inside x\.root") as caught:
        resolve_inside(path, root, "x.root", param="path")
    assert (caught.value.status, caught.value.param, caught.value.type) == (403, "path", "permission_error")


def test_an_unusable_path_is_refused(root: Path) -> None:
    with pytest.raises(UnusablePathError, match="is not a usable path") as caught:
        resolve_inside("a\0b" + "x" * 5000, root, "x.root")
    assert len(str(caught.value)) < 1000


def test_a_loop_of_links_is_refused_or_found_inside(root: Path) -> None:
    """From Python 3.13 on, only opening it fails."""
    with suppress(UnusablePathError):
        assert resolve_inside("loop/a", root, "x.root").is_relative_to(root)


def test_a_root_must_be_a_directory(tmp_path: Path) -> None:
    assert find_root("x.root", None) is None
    (tmp_path / "file").write_text("")
    for path in ("file", "none"):
        with pytest.raises(ConfigError, match=r"x\.root = .* is not a directory. Create it"):
            find_root("x.root", str(tmp_path / path))
    with pytest.raises(ConfigError, match=r"x\.root: "):
        find_root("x.root", "~nobody-of-this-name/x")
