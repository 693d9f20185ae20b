"""Prefill attention of SGLang by HK.

`install.py`: the factories of SGLang's backends, each followed by HK's wrapping.
`server.py`: server configurations that HK does not serve.
`backend.py`: the wrapper, a subclass of the parent's class, around HK's part.
`prefill.py`: HK's part, with its layers and the count of their calls.
`batch.py`: for each batch, the rows that HK computes, as metadata beside the parent's.
`drafts.py`: rows of drafts, those that a target verifies and those of a draft model.
`draft_backends.py`: the backends that SGLang makes for a draft model.
`parent_rows.py`: the parent's rows of a batch that HK shares with it.
`layers.py`: for each layer, whether HK can serve it, and with which arguments.
`contest.py`: for each kind of layer, a measurement of whether HK or the parent is faster.
`pools.py`: the KV pool, as HK writes and reads it.
`parents.py`: the scales that each parent applies to an FP8 pool, and what it reads from it.
`probe.py`: layers over a parent that computes nothing, for `hk-backend bench launch`.
"""
