"""What is measured: one module per case, each with a `run(options) -> Result`."""
