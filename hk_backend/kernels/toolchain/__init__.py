"""Building the GPU kernels, and analysing what was built."""
