"""Benchmarks of the operators: `hk-backend bench`."""
