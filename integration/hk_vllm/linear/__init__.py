"""Linear layers of vLLM, computed by HK.

What SGLang's has in common with it is in hk_backend.engine.linear.

layer.py          whether HK serves a layer
unquantized.py    layers of bf16, fp16 and fp32 checkpoints, and the LM head
kernels.py        HK first in vLLM's own lists of FP8 and MX kernels
kernel_keys.py    what vLLM's configurations of those kernels ask for, in HK's names
checkpoints.py    around vLLM's schemes: what they change of a checkpoint, HK reads before them
tensor_names.py   the tensor that is being loaded, for errors and for merged layers
quantization.py   --quantization hk_fp8, hk_mxfp8, hk_mxfp6, hk_mxfp4
online_checks.py  what those quantise while loading has arrived
model.py          after a model is loaded: which of its layers HK serves, which not, and why
saving.py         a model with packed weights is not saved: nothing could load it
contract.py       what of vLLM all of that relies on
install.py        all of it, put in place once
"""
