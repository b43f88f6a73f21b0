"""Measurements, as programs: nothing here is a test, because machines are noisy."""
