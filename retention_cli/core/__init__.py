"""Values that every package uses: facts, decisions, units, times. It imports no other package of kretain's."""
