"""What specserve costs and gains on this machine, as ratios within one run.

`python -m benchmarks` runs everything; docs/benchmarks.md says what each benchmark measures. One module per
benchmark, each with a `run(options) -> Result`; none of them is imported before it is asked for.
"""
