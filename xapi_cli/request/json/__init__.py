"""JSON texts: numbers stay as they were written."""
