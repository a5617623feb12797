"""How bodies are read and answers written: JSON, events, errors that name a field. Knows no API."""
