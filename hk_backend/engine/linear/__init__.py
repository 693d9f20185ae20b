"""Linear layers of an engine, computed by HK: what no engine has to itself.

packed_layer.py   a layer's weight: asked for, packed, released, and named in an error
shards.py         the shards of a merged layer: their names and their parts
unset.py          tensors that a checkpoint lacks
scales.py         FP8 scales as a checkpoint has them, before an engine changes them
tensor_names.py   the tensor that is being loaded, for errors and for merged layers
options.py        the hk_* quantisation methods: their formats, and their options checked
online.py         a weight that is quantised while it is loaded
account.py        after a model is loaded: its layers counted and logged
saving.py         a model with packed weights is not saved: nothing could load it
"""
