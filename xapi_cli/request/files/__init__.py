"""Write response bodies to files."""
