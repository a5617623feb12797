"""What a run is made of: model, sizes, plugins, number of clients; and the flags of its two servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fuzz.adapter_files import write_adapter
from server_process import path_with_tests, serve_command
from soak.cases import FIXED_ADAPTERS, VERSIONS
from soak.wrong_bodies import MAX_BODY_BYTES
from specserve.models.locate import locate_model
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

NOT_DRAFTING = (
    *("--plugin", "lora", "--plugin", "grammar", "--plugin", "hybrid_attn", "--plugin", "cpu"),
    *("--kv-events", "tcp://127.0.0.1:*"),
)
DRAFTING = ("--plugin", "ngram", "--plugin", "eagle", "--plugin", "adaptive")
TEMPLATE = """\
{% for t in tools or [] %}tool: {{ t.function.name }}
{% endfor %}
{%- for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{# <tool_call> {"name": ..., "arguments": ...} </tool_call> #}assistant:
"""
"""For models that know no tools: calls have Hermes' form."""


class Setting(NamedTuple):
    """`folder` gets logs, failures, adapters. `module` is what `python -m` runs as `specserve`. `form`: of
    `server_process.FORMS`; None: the one that the server chooses by itself."""

    folder: Path
    model: Path
    head: str
    kv_memory: str
    num_cases: int = 88
    num_clients: int = 24
    max_num_seqs: int = 12
    max_waiting: int = 40
    module: str = "specserve"
    form: str | None = None

    @property
    def command(self) -> list[str]:
        form = [] if self.form is None else [f"--{self.form}"]
        return serve_command(self.model, "--threads", "1", *form, *self.flags, module=self.module)

    @property
    def reference_command(self) -> list[str]:
        return serve_command(self.model, "--threads", "1", "--no-engine-process", *self.reference_flags)

    @property
    def variables(self) -> dict[str, str]:
        """A module of the tests is found."""
        return path_with_tests()

    @property
    def shared_flags(self) -> list[str]:
        """Of both servers: all that an answer may depend on."""
        known = [f"lora.adapters.{name}={self.folder / 'adapters' / name}" for name in VERSIONS]
        settings = [f"lora.root={self.folder / 'adapters'}", *known[: len(FIXED_ADAPTERS)]]
        flags = [flag for one in settings for flag in ("--set", one)]
        return [
            *flags,
            "--served-model-name",
            "base",
            "--chat-template",
            str(self.folder / "template.jinja"),
            *NOT_DRAFTING,
        ]

    @property
    def reference_flags(self) -> list[str]:
        """One request at a time, whole prompts, no drafts, nothing cached."""
        third = f"lora.adapters.{VERSIONS[-1]}={self.folder / 'adapters' / VERSIONS[-1]}"
        alone = ["--max-num-seqs", "1", "--no-prefix-cache", "--kv-memory", "64M", "--max-draft-tokens", "0"]
        return [*self.shared_flags, *alone, "--set", third, "--set", "grammar.forced_drafts=false"]

    @property
    def flags(self) -> list[str]:
        """A cache that few requests fill, and room for two adapters of three: all of it is contended."""
        sizes = ["--max-num-seqs", str(self.max_num_seqs), "--max-waiting", str(self.max_waiting)]
        sizes += ["--kv-memory", self.kv_memory, "--max-body-bytes", str(MAX_BODY_BYTES)]
        settings = (f"eagle.model={self.head}", "eagle.steps=3", "lora.max_loaded=2", "ngram.capacity=60000")
        settings += ("ngram.max_corpora=4", f"ngram.corpus_root={self.folder / 'corpora'}")
        return [*self.shared_flags, *DRAFTING, *sizes, *(flag for one in settings for flag in ("--set", one))]


def demo_setting(folder: Path) -> Setting:
    return written(Setting(folder, locate_model("demo"), "demo-eagle3", kv_memory="7M"))


def toy_setting(folder: Path, **overrides: object) -> Setting:
    """The draft model is another toy: some of its drafts are right."""
    model = write_checkpoint(folder / "toy")
    return written(Setting(folder, model, str(model), kv_memory="2M")._replace(**overrides))


def written(setting: Setting) -> Setting:
    """With its adapters, its template and a corpus on disk."""
    for seed, name in enumerate(VERSIONS):
        write_adapter(setting.folder / "adapters" / name, setting.model, seed)
    (setting.folder / "template.jinja").write_text(TEMPLATE)
    (setting.folder / "corpora").mkdir(exist_ok=True)
    return setting
