"""What lies on the brokers' disks, and what must go: R5, R6 and R7 over columns of segments, pure.

``segments`` are the columns, ``water_level`` is R6's walk over them, ``in_the_way`` what it could not reach.
"""
