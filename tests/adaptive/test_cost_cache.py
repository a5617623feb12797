"""What steps take, kept across starts: found again, or measured anew where it is of something else or damaged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from specserve.errors import ConfigError
from specserve.protocols import CostTable
from specserve_adaptive.cost_cache import MOMENT, kept_costs
from specserve_workbench.testing.engines import make_engine

TABLE = CostTable([1, 8], [0.5, 0.75], 1e-6, (1, 8))


class Runtime:
    """`table`: what it measures."""

    drafters = ("some",)

    def __init__(self, table=TABLE, **identity):
        self.table, self.identity = table, {"model": "toy", **identity}
        self.measured = []

    def measure_costs(self, seconds):
        self.measured.append(seconds)
        return self.table


def test_the_second_start_measures_for_a_moment_only(tmp_path):
    first, second = Runtime(), Runtime()
    assert kept_costs(str(tmp_path / "new" / "folder"), first, 2.0) == TABLE
    assert kept_costs(str(tmp_path / "new" / "folder"), second, 2.0) == TABLE
    assert (first.measured, second.measured) == ([2.0], [MOMENT])


def test_what_a_busy_machine_measured_is_replaced_by_what_a_later_start_sees(tmp_path):
    busy, idle = CostTable([1, 4, 8], [0.6, 0.6, 1.1], 3e-6), CostTable([1, 4], [0.5, 0.7], 0.0)
    assert kept_costs(str(tmp_path), Runtime(busy), 2.0) == busy
    fast = CostTable([1, 4, 8], [0.5, 0.6, 1.1], 3e-6)
    assert kept_costs(str(tmp_path), Runtime(idle), 2.0) == fast
    assert kept_costs(str(tmp_path), Runtime(busy), 2.0) == fast  # and a busy one later changes nothing
    assert len(list(tmp_path.iterdir())) == 1


def test_a_table_of_other_graph_buckets_is_not_mixed_with_the_kept_one(tmp_path):
    kept_costs(str(tmp_path), Runtime(CostTable([1, 8], [0.1, 0.2], 0.0, (1, 8))), 2.0)
    other = Runtime(CostTable([1, 4], [0.5, 0.75], 0.0, (1, 4)))
    assert kept_costs(str(tmp_path), other, 2.0) == other.table
    assert other.measured == [MOMENT, 2.0]  # what is kept next was measured in full


def test_a_moment_is_no_longer_than_what_was_asked_for(tmp_path):
    first, second = Runtime(), Runtime()
    for runtime in (first, second):
        kept_costs(str(tmp_path), runtime, 0.1)
    assert (first.measured, second.measured) == ([0.1], [0.1])


@pytest.mark.parametrize("where", ["none", "folder"])
def test_passes_that_only_a_load_explains_are_not_believed(tmp_path, where):
    """More rows than others take no less, and no longer than several passes of others."""
    where = where if where == "none" else str(tmp_path)
    measured = CostTable([1, 4, 8, 16, 64], [0.4, 0.3, 30.0, 38.0, 1.3])
    assert kept_costs(where, Runtime(measured), 2.0).seconds == [0.3, 0.3, 0.6, 1.2, 1.3]


def test_another_machine_or_configuration_is_measured(tmp_path):
    other = Runtime(device="another")
    kept_costs(str(tmp_path), Runtime(), 2.0)
    kept_costs(str(tmp_path), other, 2.0)
    assert other.measured == [2.0]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", [
    b"", b"{", b"[]", lambda text: text[:-9], lambda text: text.replace(b"0.75", b"-1.0"),
    lambda text: text.replace(b'"rows":[1,8]', b'"rows":[8,1]'), lambda text: text.replace(b"toy", b"other"),
])  # fmt: skip
def test_a_damaged_file_is_written_anew(tmp_path, damage):
    kept_costs(str(tmp_path), Runtime(), 2.0)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()) if callable(damage) else damage)
    again, third = Runtime(), Runtime()
    assert kept_costs(str(tmp_path), again, 2.0) == TABLE
    assert again.measured == [2.0]
    kept_costs(str(tmp_path), third, 2.0)
    assert third.measured == [MOMENT]


def test_none_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept_costs("none", Runtime(), 2.0)
    assert not list(tmp_path.iterdir())


def test_auto_is_in_the_users_cache_and_goes_on_without(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept_costs("auto", Runtime(), 2.0)
    assert len(list((tmp_path / "cache" / "specserve" / "step-costs").iterdir())) == 1
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kept_costs("auto", Runtime(), 2.0) == TABLE
    assert "measured at every start, since it cannot be kept" in caplog.text


def test_a_user_without_a_home_is_served_and_told(monkeypatch, caplog):
    """As in a container that runs with any user's number."""

    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert kept_costs("auto", Runtime(), 2.0) == TABLE
    assert "cannot be kept: [Errno 2] the user has no home directory, and XDG_CACHE_HOME is not set" in caplog.text


def test_a_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"adaptive.cost_cache = .* cannot be written to: .*Name a directory"):
        kept_costs(str(tmp_path / "file"), Runtime(), 2.0)


def test_an_engine_keeps_what_it_measured(toy_model, tmp_path):
    options = {"adaptive": {"cost_cache": str(tmp_path)}}
    engines = [make_engine(toy_model, plugins=("ngram", "adaptive"), plugin_options=options).engine for _ in range(2)]
    assert len(list(tmp_path.iterdir())) == 1
    first, second = (engine.planner.planner.costs for engine in engines)
    assert all(later <= earlier for earlier, later in zip(first.table, second.table, strict=True))


def test_engines_that_start_at_once_keep_one_table(tmp_path, monkeypatch):
    """Threads of one process, and processes that have the same number in containers of their own."""
    all_written, write_bytes = Barrier(4), Path.write_bytes

    def write_together(path, data):
        write_bytes(path, data)
        all_written.wait(60)

    monkeypatch.setattr(Path, "write_bytes", write_together)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: kept_costs(str(tmp_path), Runtime(), 2.0), range(4)))
    assert found == [TABLE] * 4
    assert len(list(tmp_path.iterdir())) == 1
