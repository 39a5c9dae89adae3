"""A Kafka in memory, and kretain let loose on it: sequences of faults that no table of single plans can find."""
