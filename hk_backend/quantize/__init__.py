"""`hk-backend quantize`: from a 16- or 32-bit checkpoint to a quantised one, shard by shard.

Engine-neutral: it reads and writes safetensors, and leaves the numbers to `hk_backend.ops`. Nothing
here is imported for serving; `options` (of the command line) needs no torch.
"""
