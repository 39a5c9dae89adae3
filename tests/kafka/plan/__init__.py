"""Plans of a real cluster: rules, look-ups, guards."""
