"""Read the input of a batch."""
