"""`python -m specserve` of the core alone: it generates, and says what its other commands need."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from absent import core_alone, run_core_alone
from specserve import __version__
from specserve.command import generate
from specserve.command.exit_codes import run_command
from specserve.config import EngineConfig
from specserve.errors import ConfigError

PROMPT = "def add(a, b):"


def configured(*arguments: str) -> EngineConfig:
    args = generate.make_parser().parse_args(["generate", PROMPT, *arguments])
    return generate.engine_config(None, args)


def test_the_core_generates_alone_what_the_full_command_line_generates() -> None:
    request = ("generate", PROMPT, "--max-tokens", "8", "--temperature", "0")
    done = run_core_alone(*request, "--set", "engine.threads=1")
    assert done.returncode == 0, done.stderr
    whole = subprocess.run([sys.executable, "-m", "specserve", *request], capture_output=True, text=True, check=True)
    assert done.stdout == whole.stdout
    assert done.stdout.strip()
    assert done.stderr.splitlines()[-1].startswith("8 tokens in "), "statistics go to standard error"


def test_a_model_a_plugin_and_its_options_give_the_same_text() -> None:
    drafts = ("--plugin", "ngram", "--set", "ngram.min_match=2")
    request = (PROMPT * 4, "--max-tokens", "32", "--temperature", "0", "--seed", "1")
    plain, drafted = (run_core_alone("generate", "demo", *request, *more) for more in ((), drafts))
    assert (plain.returncode, drafted.returncode) == (0, 0), plain.stderr + drafted.stderr
    assert plain.stdout == drafted.stdout
    assert "draft tokens accepted" in drafted.stderr


def test_settings_reach_the_fields_of_the_engine_and_the_options_of_plugins() -> None:
    config = configured(
        *("--set", "engine.max_num_seqs=4", "--set", "engine.prefix_cache=false", "--set", "engine.kv_memory=1G"),
        *("--set", "engine.generation_config.top_p=0.5", "--set", "engine.graph_buckets=[1, 2]"),
        *("--plugin", "ngram", "--plugin", "lora", "--set", "ngram.min_match=2", "--set", "engine.model=some/model"),
    )
    assert (config.max_num_seqs, config.prefix_cache, config.kv_memory) == (4, False, "1G")
    assert (config.generation_config, config.graph_buckets) == ({"top_p": 0.5}, (1, 2))
    assert (config.plugins, config.model) == (("ngram", "lora"), "some/model")
    assert config.plugin_options == {"ngram": {"min_match": "2"}}


def test_without_settings_the_configuration_is_the_defaults() -> None:
    assert configured() == EngineConfig()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("engine.max_num_sekz=4", "--set engine.max_num_sekz: there is no such name here; did you mean max_num_seqs?"),
        ("engine.max_num_seqs=many", "--set engine.max_num_seqs: must be an integer"),
        ("engine.max_num_seqs=0", "max_num_seqs must be at least 1; got 0."),
        ("engine=4", "--set engine=4: 'engine' does not name an option"),
    ],
)
def test_a_wrong_setting_is_told_by_its_name(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured("--set", setting)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["generate", PROMPT, "--threads", "1"], "unrecognized arguments: --threads 1; see python -m specserve"),
        (["generate"], "required: [MODEL] PROMPT"),
        (["generate", "a", "b", "c"], "quote a prompt"),
        (["generate", PROMPT, "--max-tokens", "0"], "max_tokens"),
        (["generate", PROMPT, "--set", "engine.block_size=7"], "block_size"),
        (["generate", "no/model/here", PROMPT], "no/model/here"),
        (["serve", "--port", "0"], "the command serve needs the distribution specserve. Run pip install specserve."),
        (["plugins", "list"], "pip install specserve"),
        (["doctor"], "pip install specserve"),
        ([], "required: generate, [MODEL] PROMPT"),
    ],
)
def test_what_the_core_alone_cannot_do_is_one_line_and_exit_code_2(argv: list[str], message: str) -> None:
    done = run_core_alone(*argv)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("specserve: error: ")
    assert message in line


def test_help_and_version_are_printed() -> None:
    done = run_core_alone("--version")
    assert (done.returncode, done.stdout) == (0, f"specserve {__version__}\n")
    text = generate.make_parser().format_help()
    assert "pip install specserve" in text
    assert "--set NAME.KEY=VALUE" in text


def heed_interrupts() -> None:
    """A shell has its background jobs ignore them, and so would what these start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_it_with_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run_command(interrupted) == 130
    request = ("generate", PROMPT, "--max-tokens", "1500", "--set", "engine.threads=1")
    with subprocess.Popen(
        core_alone(*request), stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_interrupts
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1), "it generates"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in error) == (130, False), error
