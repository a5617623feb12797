"""GET /openapi.json: what every route takes and answers."""
