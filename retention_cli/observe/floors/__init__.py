"""Where consumers stand: one module per source of committed offsets, and the fold over them."""
