"""What everything printed goes through."""
