"""What commands tell without trimming."""
