"""Linear layers of vLLM, computed by HK.

layer.py          a layer's weight: asked for, packed, released, and named in an error
unquantized.py    layers of bf16, fp16 and fp32 checkpoints, and the LM head
kernels.py        HK first in vLLM's own lists of FP8 and MX kernels
checkpoints.py    what of a checkpoint's scales has to be read before vLLM changes them
quantization.py   --quantization hk_fp8, hk_mxfp8, hk_mxfp6, hk_mxfp4
model.py          after a model is loaded: which of its layers HK serves, which not, and why
contract.py       what of vLLM all of that relies on
install.py        all of it, put in place once
"""
