"""llama.cpp's server with a draft head, asked for one text after the other. Runs in build/peers/llamacpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamacpp_worker import ask, start_server
from wire import answer_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wire import HeadSetup, Job, Reply

FLOAT32 = [flag for name in ("-ctk", "-ctv", "-ctkd", "-ctvd") for flag in (name, "f32")]
"""Keys and values of target and head."""


def load(setup: HeadSetup) -> Callable[[Job], Iterator[Reply]]:
    threads = str(setup["threads"])
    url = start_server(
        ["-m", setup["model"], "-md", setup["head"], "--spec-type", f"draft-{setup['kind']}", "--spec-draft-n-max",
         str(setup["steps"]), "-t", threads, "-tb", threads, "-np", "1", "-c", str(setup["max_len"]), *FLOAT32]
    )  # fmt: skip

    def answer(job: Job) -> Iterator[Reply]:
        outputs, steps = [], []
        for prompt in job["prompts"]:
            body = {"prompt": prompt, "n_predict": job["num_tokens"], "top_k": 1, "temperature": 0.0}
            reply = ask(url, {**body, "ignore_eos": True, "cache_prompt": False, "return_tokens": True})
            outputs.append(reply["tokens"])
            # Each step gives its accepted draft tokens and one more; the first token is the prompt's.
            steps.append(len(reply["tokens"]) - 1 - reply["timings"].get("draft_n_accepted", 0))
        yield {"outputs": outputs, "steps": steps}

    return answer


if __name__ == "__main__":
    answer_jobs(load)
