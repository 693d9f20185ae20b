"""The vLLM plugin: HK computes prefill attention of vLLM's own backends, and its linear layers.

`plugin.py`: the entry point, which registers the routes.
`contract.py`: vLLM's classes and signatures that the plugin needs, checked before any patch.
`attention/`: prefill attention.
`linear/`: linear layers: unquantised, FP8 and MX.
`compile_key.py`: the active routes in vLLM's compile-cache key.
"""
