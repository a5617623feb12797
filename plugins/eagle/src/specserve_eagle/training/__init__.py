"""Training of draft heads against a frozen target model: `specserve-eagle train` and `specserve-eagle eval`."""
