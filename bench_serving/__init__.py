"""Serving and kernel benchmarks, and the demo: the top floor, run from a checkout."""
