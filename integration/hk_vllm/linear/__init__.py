"""Linear layers of vLLM, computed by HK.

layer.py          a layer's weight: asked for, packed, released, and named in an error
shards.py         the shards of a merged layer: their names and their parts
unset.py          tensors that a checkpoint lacks
unquantized.py    layers of bf16, fp16 and fp32 checkpoints, and the LM head
kernels.py        HK first in vLLM's own lists of FP8 and MX kernels
kernel_keys.py    what vLLM's configurations of those kernels ask for, in HK's names
checkpoints.py    what of a checkpoint's scales has to be read before vLLM changes them
tensor_names.py   the tensor that is being loaded, for errors and for merged layers
quantization.py   --quantization hk_fp8, hk_mxfp8, hk_mxfp6, hk_mxfp4
online_checks.py  what those quantise while loading has arrived, and is finite
model.py          after a model is loaded: which of its layers HK serves, which not, and why
saving.py         a model with packed weights is not saved: nothing could load it
contract.py       what of vLLM all of that relies on
install.py        all of it, put in place once
"""
