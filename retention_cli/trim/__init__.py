"""A plan carried out: rechecked, sent, verified, reported."""
