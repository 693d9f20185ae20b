"""Prefill attention of vLLM by HK.

install.py        the choice of a backend, in which HK takes part
registry.py       HK's wrappers in vLLM's registry of backends
backend.py        a wrapper class per parent backend, created when vLLM asks for it
builder.py        per step: which rows HK computes, as metadata beside the parent's
batch.py          a step in the words of HK's planner, and the parent's rows of it
lazy_metadata.py  the parent's metadata, built when they are first used
impl.py           per layer: HK computes its rows, the parent the rest; counts fallbacks
layer.py          per layer: whether HK can serve it
contest.py        per kind of layer: whether HK or the parent is faster, measured
cache_forms.py    how each parent stores keys and values
"""
