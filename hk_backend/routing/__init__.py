"""Counts verdicts: routes, metrics, shadow checks."""
