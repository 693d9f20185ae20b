"""Runs micro-kernels on a GPU to measure the timing model's parameters."""
