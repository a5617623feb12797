"""`specserve doctor`: what it prints, its exit code, and one run as users start it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specserve_server.cli import main
from specserve_workbench.commands import doctor
from specserve_workbench.doctor.rows import Row, Section

QUICK = ("--no-self-test", "--port", "0", "--kv-memory", "8M")
SECTIONS = ["python", "torch", "processor", "memory", "build tools", "plugins", "gpu", "model", "port"]


def test_the_text_is_aligned_and_ends_with_a_summary(toy_model, capsys):
    assert main(["doctor", str(toy_model), *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")][:-1] == SECTIONS
    assert lines[-1].startswith("0 failed, warnings: ")
    assert lines[-1].endswith("; ready to serve.")
    port = lines.index("port")
    assert lines[port + 1] == "  ok       address  127.0.0.1, any free port"


def test_json_has_one_shape(toy_model, capsys):
    assert main(["doctor", str(toy_model), "--json", *QUICK]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"specserve", "ok", "counts", "sections"}
    assert [section["name"] for section in report["sections"]] == SECTIONS
    rows = [row for section in report["sections"] for row in section["rows"]]
    assert all(set(row) == {"check", "status", "found", "advice", "figures"} for row in rows)
    assert report["counts"] == {
        status: sum(row["status"] == status for row in rows) for status in ("ok", "note", "warning", "failed")
    }
    assert report["ok"] is True


def test_what_a_plugin_prints_is_no_part_of_the_json(toy_model, capsys, install):
    install("loud", plugin="print('hello')")
    main(["doctor", str(toy_model), "--json", *QUICK])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["specserve"]
    assert "hello" in printed.err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_failure_is_exit_code_1(tmp_path, capsys, form):
    assert main(["doctor", str(tmp_path / "nothing"), *QUICK, *form]) == 1
    out = capsys.readouterr().out
    assert "there is no such directory" in " ".join(out.split())
    assert "something has failed" in out or json.loads(out)["ok"] is False


@pytest.mark.parametrize(
    "wrong", [["--config", "no/such/file"], ["--block-size", "7"], ["--port", "99999"], ["--set", "ngram"]]
)
def test_wrong_usage_is_exit_code_2(wrong, capsys):
    assert main(["doctor", *wrong]) == 2
    assert capsys.readouterr().err.startswith("specserve: error: ")


def test_an_unknown_flag_is_exit_code_2():
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--frob"])


def test_the_configuration_file_is_read(toy_model, tmp_path, capsys):
    file = tmp_path / "serve.toml"
    file.write_text(f'[engine]\nmodel = "{toy_model}"\nplugins = ["no-such"]\n[server]\nport = 0\n')
    assert main(["doctor", "--config", str(file), "--no-self-test"]) == 1
    assert "plugin no-such is not installed" in " ".join(capsys.readouterr().out.split())


def test_long_lines_are_wrapped_under_their_column():
    found = "a word and " * 9 + "/a/path/that/is/" + "long/" * 9
    text = doctor.section_text(Section("model", [Row("name", "failed", found, "do this")]), 60)
    head, first, second, *rest = text.splitlines()
    assert (head, first[:17]) == ("model", "  failed   name  ")
    assert second[:17].isspace()
    assert max(len(line) for line in (first, second)) <= 60
    assert any("/a/path" in line and line.endswith("long/") for line in rest)
    assert rest[-1] == " " * 17 + "-> do this"


def test_without_torch_it_says_so_and_goes_on():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from specserve_server.cli import main; sys.exit(main(['doctor', '--json', '--port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    sections = {section["name"]: section["rows"] for section in json.loads(done.stdout)["sections"]}
    assert list(sections) == [*SECTIONS, "self-test"]
    assert sections["torch"][0]["status"] == "failed"
    assert "torch" in sections["torch"][0]["found"]
    assert {row["status"] for row in sections["python"]} == {"ok"}


def test_a_real_run_proves_that_drafts_change_nothing():
    command = [
        sys.executable,
        "-m",
        "specserve",
        "doctor",
        "--json",
        "--port",
        "0",
        "--plugin",
        "ngram",
        "--threads",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True), report
    rows = {row["check"]: row for row in report["sections"][-1]["rows"]}
    assert rows["model"]["found"].startswith("demo: cpu-")
    for check in ("test drafter", "enabled drafters"):
        assert rows[check]["status"] == "ok"
        assert 0 < rows[check]["figures"]["accepted"] <= rows[check]["figures"]["drafted"]
        assert rows[check]["figures"]["compared"] > 0
    assert rows["enabled drafters"]["found"].startswith("ngram: ")
    assert rows["with drafts"]["figures"]["tokens_per_second"] > 0
    assert "warnings" not in rows
