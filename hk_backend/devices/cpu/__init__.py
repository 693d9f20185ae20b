"""The cpu device: native host kernels (`csrc/cpu`) on torch CPU tensors."""
