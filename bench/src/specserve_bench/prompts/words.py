"""The words of which built-in prompts are made."""

from __future__ import annotations

ENTITIES = (
    *("account", "booking", "camera", "device", "employee", "flight", "garden", "hotel", "invoice", "journal"),
    *("library", "machine", "network", "order", "package", "query", "recipe", "sensor", "ticket", "vehicle"),
)
FIELDS = (
    *("name", "owner", "status", "created", "updated", "price", "weight", "colour", "length", "priority"),
    *("version", "location", "category", "description", "quantity", "language", "country", "comment"),
)
PEOPLE = ("Amara", "Bjorn", "Chiara", "Dmitri", "Elif", "Farid", "Grace", "Hiroshi", "Ines", "Jamal", "Kaia", "Luis")
CITIES = ("Accra", "Bergen", "Cusco", "Dublin", "Esfahan", "Fukuoka", "Ghent", "Hanoi", "Izmir", "Jaipur", "Kraków")
