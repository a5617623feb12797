"""specserve against vLLM and OpenVINO GenAI on the CPU: the same requests, taking turns.

`workloads` says what is asked, `engines` who is asked and how each is set up, `engine_process` and `servers` are their
processes; `benchmarks.cases.peers` is the benchmark and its table. `workers` holds the programs that run in those
processes. `python -m benchmarks.peers.make_peers` installs the rivals.
"""
