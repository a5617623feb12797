"""What specserve costs and gains on this machine, as ratios within one run.

`python -m benchmarks` runs every case; docs/benchmarks.md says what each one measures. `cases` holds one module per
case, each with a `run(options) -> Result`, imported only when it is run. `lib` is what cases share; `peers` and
`replay` hold what the cases of these names are made of.
"""
