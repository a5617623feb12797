"""The runtime for drafters with decoder layers of their own: their rows, hidden states and keys, request by request."""
