"""Multi-head latent attention in the layer of a head (DeepSeek-V2, 2024): queries, keys and values from narrow rows."""
