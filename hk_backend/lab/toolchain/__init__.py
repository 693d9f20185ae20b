"""Builds the GPU kernels, and analyses the built code."""
