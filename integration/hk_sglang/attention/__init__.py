"""Prefill attention of SGLang by HK.

install.py   the factories of SGLang's backends, each followed by HK's wrapping
server.py    server configurations that HK does not serve
backend.py   the wrapper: a subclass of the parent's class, around HK's part
prefill.py   HK's part: its layers, and each of their calls, counted
batch.py     per batch: the rows that HK computes, as metadata beside the parent's
parent_rows.py  the parent's rows of a batch that HK shares with it
layers.py    per layer: whether HK can serve it, and with which arguments
contest.py   per kind of layer: whether HK or the parent is faster, measured
caches.py    the pool as HK writes and reads it
pools.py     how the KV pool stores keys and values
parents.py   the scales that each parent applies to an FP8 pool, and what it reads from it
"""
