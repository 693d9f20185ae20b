"""The vLLM plugin: HK computes prefill attention of vLLM's own backends, and its linear layers.

plugin.py       the entry point: what is registered, and when nothing is
contract.py     vLLM's classes and signatures that the plugin needs, checked before any patch
backend.py      a wrapper class per parent backend, created when vLLM asks for it
builder.py      per step: which rows HK computes, as metadata alongside the parent's
impl.py         per layer: HK computes its rows, the parent the rest; counts fallbacks
cache_forms.py  how each parent stores keys and values
linear/         linear layers: unquantised, FP8 and MX
compile_key.py  the active routes in vLLM's compile-cache key
"""
