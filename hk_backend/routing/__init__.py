"""Counters of what HK served: routes, metrics, shadow checks."""
