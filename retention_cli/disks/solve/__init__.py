"""R5, R6 and R7 over columns of the segments on brokers' disks. Pure.

``segments`` has the columns, ``water_level`` is R6's walk over them, ``blockers`` lists the bytes it could not reach.
"""
