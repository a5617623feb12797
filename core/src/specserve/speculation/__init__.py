"""How many tokens to draft and to verify: calibration of survival, step costs, back-off, the default planner."""
