"""What every room speaks of: facts, decisions, units, times; no room of ours is below it."""
