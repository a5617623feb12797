"""What `make test-arm` makes, and what it says where it cannot."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import cross_build
import pytest
import sysroot
import tools
from places import BUILD, STRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def test_where_it_cannot_run_it_is_left_out_and_refused_for_the_same_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cannot = [(platform, "machine", lambda: "aarch64"), (tools, "which", lambda name: None)]
    for module, name, value in cannot:
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            reason = tools.impossible()
            assert reason is not None
            assert tools.left_out() == reason
            with pytest.raises(tools.PrepareError, match=reason):
                tools.require()


def test_what_would_have_to_be_installed_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tools.left_out() is None
    monkeypatch.setattr(tools, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    reason = tools.left_out()
    assert reason is not None
    assert all(program in reason for program in tools.PACKAGES)


def test_packages_that_have_their_libraries_below_usr_alone_are_found_in_lib(tmp_path: Path) -> None:
    """As libc6 of Debian 13 has the loader of programs."""
    loader = tmp_path / "usr" / "lib" / "ld-linux-aarch64.so.1"
    loader.parent.mkdir(parents=True)
    loader.touch()
    for _ in range(2):
        sysroot.link_lib(tmp_path)
        assert (tmp_path / "lib" / loader.name).samefile(loader)


def test_packages_that_have_libraries_in_lib_keep_them(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    sysroot.link_lib(tmp_path)
    assert not (tmp_path / "lib").is_symlink()


def test_the_stress_program_is_linked_anew_whenever_its_library_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes: dict[Path, Sequence[object]] = {}

    def record(folder: Path, recipe: Sequence[object], make: Callable[[], None]) -> None:
        recipes[folder] = recipe

    monkeypatch.setattr(cross_build, "once", record)
    monkeypatch.setattr(cross_build, "link", lambda name: None)
    monkeypatch.setattr(cross_build, "link_metadata", lambda: None)
    cross_build.make()
    assert set(recipes[BUILD / "cpu"]) - {cross_build.python_version()} <= set(recipes[STRESS])
    assert cross_build.STRESS_FLAGS in recipes[STRESS]
