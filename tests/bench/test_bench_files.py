"""Files that a command writes, and servers that it starts."""

from __future__ import annotations

import pytest

from specserve.errors import ConfigError
from specserve_bench.output.files import check_files, write_file
from specserve_bench.served.server_process import NotReadyError, server


def test_a_file_that_cannot_be_written_is_told_before_the_measurement(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere/out\.json cannot be written: No such file"):
        check_files(None, tmp_path / "nowhere" / "out.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        check_files(tmp_path)


def test_a_check_changes_no_file(tmp_path):
    path = tmp_path / "out.json"
    write_file(path, "old")
    check_files(path)
    assert path.read_text() == "old"
    check_files(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def test_a_server_that_does_not_start_says_why():
    why = "exit code 2 before it was ready: .*no option --nonsense"
    with pytest.raises(NotReadyError, match=why), server("--nonsense"):
        pytest.fail("it is not ready")
