"""The commands of the server: `specserve serve` and `specserve completion`."""
