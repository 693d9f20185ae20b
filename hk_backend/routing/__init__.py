"""Verdicts counted: routes, metrics, shadow checks."""
