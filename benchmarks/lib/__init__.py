"""What several cases use: timing, workloads, engines, server processes, reports. Imports no case."""
