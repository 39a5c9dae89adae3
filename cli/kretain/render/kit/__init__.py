"""What all that is printed goes through."""
