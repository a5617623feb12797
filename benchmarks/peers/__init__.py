"""specserve against vLLM and OpenVINO GenAI on the CPU: the same requests, taking turns.

`cases` says what is asked, `rivals` who is asked and how each is set up, `worker` and `servers` are their
processes, `bench` is the benchmark and its table. `workers` holds the programs that run in those processes.
`python -m benchmarks.make_peers` installs the rivals.
"""

from benchmarks.peers.bench import arguments, run

__all__ = ["arguments", "run"]
