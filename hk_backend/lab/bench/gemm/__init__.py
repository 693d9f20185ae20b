"""Times launches of GPU gemm kernels, on a GPU or by the timing model.

`hk-backend tune-kernels` keeps the times in a file; `bench linear --device` compares them with
published ones.
"""
