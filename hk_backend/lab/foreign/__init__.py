"""Kernels that are not ours: any code object, and every Triton kernel, in the emulator or by its
clock."""
