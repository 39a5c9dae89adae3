"""The functions that all output uses: tables, text, reasons and progress."""
