"""`hk-backend quantize`: converts a 16- or 32-bit checkpoint to a quantised one, shard by shard.

Engine-neutral: it reads and writes safetensors, and leaves the numbers to `hk_backend.ops`. Serving
imports nothing from here; `options` (for the command line) needs no torch.
"""
