"""What to guess and how much to verify: calibration of survival, step costs, back-off, the default planner."""
