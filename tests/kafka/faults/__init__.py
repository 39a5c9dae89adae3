"""Rounds of faults on three real brokers, under live load: what went, and what was said, against what was known.

``runs.py`` deals the faults from a seed (pure), and starts kretain as a process. ``load.py`` keeps producers and consumers
going, and does and undoes the harm. ``judge.py`` has what they did, written down before it is done where the order matters,
and compares (pure). ``test_rounds.py`` plays the rounds.
"""
