"""Linear layers of vLLM, computed by HK.

The code shared with SGLang is in hk_backend.engine.linear.

layer.py          whether HK serves a layer
unquantized.py    layers of bf16, fp16 and fp32 checkpoints, and the LM head
head.py           the LM head: its format, and the tables that it shares
kernels.py        puts HK first in vLLM's own lists of FP8 and MX kernels
kernel_keys.py    what vLLM's configurations of those kernels ask for, in HK's names
contest.py        HK beside what vLLM would run, measured before a layer's weight is consumed
next_kernel.py    vLLM's own FP8 and MX kernels, where they were measured to be faster
checkpoints.py    around vLLM's schemes: HK reads what they change of a checkpoint before they do
rotated.py        checkpoints with rotated weights, which only HK serves
tensor_names.py   the tensor that is being loaded, for errors and for merged layers
quantization.py   --quantization hk_fp8, hk_mxfp8, hk_mxfp6, hk_mxfp4
online_checks.py  whether the weights that those quantise while loading have arrived
model.py          after a model is loaded: which of its layers HK serves, and why not the others
saving.py         refuses to save a model with packed weights: nothing could load it
contract.py       what all of this relies on in vLLM
install.py        installs all of it once
"""
