"""Merge the outputs of batches."""
