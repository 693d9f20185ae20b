"""Linear layers of SGLang, computed by HK.

`layer.py`: an SGLang layer, its name, and whether HK can serve it.
`contest.py`: measures whether HK or SGLang is faster for a layer.
`arrivals.py`: parameters that are empty except while they are loaded, from whole tensors.
`unquantized.py`: layers of bf16, fp16 and fp32 checkpoints.
`head.py`: the LM head, and embeddings that act as one.
`schemes.py`: a quantised layer's formats and scales, from SGLang's configurations.
`checkpoints.py`: decides which layers of quantised checkpoints get HK's method.
`methods.py`: HK's method for these layers.
`rotated.py`: layers with rotated weights, which only HK serves.
`quantization.py`: --quantization hk_fp8, hk_mxfp8, hk_mxfp6, hk_mxfp4, on ROCm, too.
`loading.py`: tensors named in errors, dummy weights, weight updates, and exports of packed weights.
`model.py`: after a model is loaded, counts the layers that HK serves, and says why not the others.
`stock.py`: SGLang's own method for a layer, and whether it computes here.
`contract.py`: SGLang's classes and signatures that the route needs.
`install.py`: installs the route once.
"""
