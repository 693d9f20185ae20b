"""Prefill attention of vLLM by HK.

`install.py`: the choice of a backend, in which HK takes part.
`registry.py`: HK's wrappers in vLLM's registry of backends.
`backend.py`: a wrapper class per parent backend, created when vLLM asks for it.
`builder.py`: for each step, the rows that HK computes, as metadata beside the parent's.
`batch.py`: a step in the words of HK's planner, and the parent's rows of it.
`lazy_metadata.py`: the parent's metadata, built when they are first used.
`impl.py`: for each layer, computes the rows by HK or the parent, and counts fallbacks.
`layer.py`: for each layer, whether HK can serve it.
`contest.py`: for each kind of layer, a measurement of whether HK or the parent is faster.
`cache_forms.py`: how each parent stores keys and values.
`probe.py`: layers over a parent that computes nothing, for `hk-backend bench launch`.
"""
