"""What goes by disks and bytes (R5, R6, R7): what is measured, and what follows from it."""
