"""Linear layers of vLLM, computed by HK.

The code shared with SGLang is in hk_backend.engine.linear.

`layer.py`: whether HK serves a layer, and is faster than vLLM's own product.
`unquantized.py`: layers of bf16, fp16 and fp32 checkpoints, and the LM head.
`head.py`: the LM head, its format, and the tables that it shares.
`kernel.py`: the base of HK's kernels; fp8_kernels.py and mx_kernels.py have them.
`kernel_lists.py`: puts them first in vLLM's own lists of FP8 and MX kernels.
`next_kernel.py`: vLLM's own FP8 and MX kernels, where they were measured to be faster.
`checkpoints.py`: reads a checkpoint's tensors before vLLM's schemes change them.
`rotated.py`: checkpoints with rotated weights, which only HK serves.
`auto_round.py`: those of auto-round.
`loading.py`: tensors named in errors, models that are not saved.
`quantization.py`: --quantization hk_fp8, hk_mxfp8, hk_mxfp6, hk_mxfp4.
`model.py`: after a model is loaded, counts the layers that HK serves, and says why not the others.
`codes.py`: activations that vLLM rounds to FP8 itself.
`created.py`: the layer that is being created.
`tied.py`: an LM head and an embedding with one table.
`contract.py`: vLLM's classes and signatures that the route needs.
`install.py`: installs the route once.
"""
