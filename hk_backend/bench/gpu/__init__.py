"""Micro-kernels on a GPU: what the timing model should know of it."""
