"""specserve against vLLM and OpenVINO GenAI on the CPU: the same requests, alternating.

`workloads` says what is asked, `engines` who is asked and how each is set up; `engine_process` and `servers` are
their processes, `workers` the programs that run in them. `python -m benchmarks.peers.make_peers` installs the other
engines. `benchmarks.cases.peers` is the benchmark.
"""
