"""Model directories in Hugging Face format, and the decoder that runs them. Knows nothing about batches or caches."""
