"""The vLLM plugin: HK computes prefill attention of vLLM's own backends, and its linear layers.

plugin.py       the entry point: what is registered, and when nothing is
contract.py     what the plugin relies on in vLLM, checked before anything is patched
backend.py      a wrapper class per parent backend, created when vLLM asks for it
builder.py      per step: which rows are HK's (rows.py), as metadata alongside the parent's
impl.py         per layer: HK on its rows, the parent on the rest, fallbacks counted
cache_forms.py  how each parent stores keys and values
linear/         linear layers: unquantised, FP8 and MX
compile_key.py  the active routes in vLLM's compile-cache key
"""
