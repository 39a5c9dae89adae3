"""How long a broker really keeps data, what endangers it, and better settings. All but ``reading`` is pure."""
