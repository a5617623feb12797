"""GET /openapi.json: what every route takes and answers. `operation` is for plugins, too."""
