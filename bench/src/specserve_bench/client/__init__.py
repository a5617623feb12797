"""One streamed request: what is sent, what comes back and when, and what may fail."""
