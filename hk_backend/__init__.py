"""HK attention and linear kernels for vLLM and SGLang: the engine-neutral half.

`hk_backend.ops` has the public operators, `hk_backend.devices` the devices that execute them.
`hk_backend.routing.routes` has the verdicts and counters that both engine plugins share.
"""

__version__ = "0.1.0"
