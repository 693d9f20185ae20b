"""Serving and kernel benchmarks, and the demo, run from a checkout.

No other package imports this one.
"""
