"""From an HTTP request to its generated response, for all APIs."""
