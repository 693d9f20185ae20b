"""The gemm kernels of the GPUs: what launches take by the model's clock or on a GPU, the file of
times that follows (`hk-backend tune-kernels`), and what others publish beside it."""
