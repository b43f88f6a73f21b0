"""Benchmarks, not tests: `make bench` compares xapi with other programs in one run, in which all alternate."""
