"""pytest imports the modules beside test files by their names alone."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
OWN_RUN = ("pytest.ini", "__main__.py", "__init__.py")
"""Of folders whose modules no other run of pytest imports by name."""


def test_no_two_folders_have_modules_of_one_name() -> None:
    folders = defaultdict(list)
    for file in [*TESTS.glob("*.py"), *TESTS.glob("*/*.py")]:
        if file.name != "conftest.py" and not any((file.parent / name).exists() for name in OWN_RUN):
            folders[file.name].append(file.parent.name)
    assert len(folders) > 500
    assert {name: found for name, found in folders.items() if len(found) > 1} == {}
