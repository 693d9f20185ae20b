"""The SGLang plugin: HK computes prefill attention of SGLang's own backends, and its linear layers.

plugin.py     the entry point: what is registered, and when nothing is
flags.py      `--attention-backend hk`: a choice that is removed before SGLang interprets it
contract.py   what the plugin relies on in SGLang, checked before anything is patched
attention/    prefill attention
linear/       linear layers: unquantised, FP8 and MX
"""
