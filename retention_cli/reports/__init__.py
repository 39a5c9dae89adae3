"""What commands report without trimming."""
