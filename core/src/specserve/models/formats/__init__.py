"""The engine's own formats of weights, a file each. `specserve.models.open_weights` chooses among them and plugins'."""
