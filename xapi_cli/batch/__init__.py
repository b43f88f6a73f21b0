"""Many calls under way at once, each a line in and a line out."""
