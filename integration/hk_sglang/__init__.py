"""The SGLang plugin: prefill attention of SGLang's own backends, and its linear layers, by HK.

plugin.py     the entry point: what is registered, and when nothing is
flags.py      `--attention-backend hk`: a choice, taken out before SGLang asks what it means
contract.py   what of SGLang the plugin relies on, checked before anything is patched
attention/    prefill attention
linear/       linear layers: unquantised, FP8 and MX
"""
