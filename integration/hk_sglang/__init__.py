"""The SGLang plugin: HK computes prefill attention of SGLang's own backends, and its linear layers.

`plugin.py`: the entry point, which registers the routes.
`resolution.py`: SGLang's attention flags, which may choose `hk`.
`contract.py`: SGLang's classes and signatures that the plugin needs, checked before any patch.
`attention/`: prefill attention.
`linear/`: linear layers: unquantised, FP8 and MX.
"""
