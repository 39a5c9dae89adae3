"""Rounds of faults on three real brokers, under live load: what went, and what was said, against what was known.

``rounds.py`` deals the faults from a seed (pure). ``load.py`` keeps producers and consumers going, who write down in
``truth.py`` what they did, before they do it where the order matters. ``runs.py`` starts kretain as a process, ``breaking.py``
does and undoes the harm, ``judge.py`` compares (pure), ``arena.py`` plays a round.
"""
