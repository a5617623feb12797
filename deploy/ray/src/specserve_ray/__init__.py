"""specserve on Ray Serve."""
