"""Regret: what the planner chooses on recorded surfaces (`load.surface`), against the best that was recorded there."""
