"""What is known while the server runs: its engine, keys, limits and counts, and of each request its record."""
