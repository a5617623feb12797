"""`specserve bench replay`: drafters on recorded texts, which serve as outputs, so that no model runs."""
