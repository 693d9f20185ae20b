"""Linear layers of an engine, computed by HK: the code that all engines share.

packed_layer.py   a layer's weight: checked, packed, released, and named in an error
shards.py         the shards of a merged layer: their names and their parts
unset.py          tensors that are missing from a checkpoint
scales.py         FP8 scales as stored in a checkpoint, before an engine changes them
rotated.py        layers whose weight is rotated in the checkpoint: only HK serves them
compressed_tensors.py   reads the rotations of weights from compressed-tensors configurations
tensor_names.py   the tensor that is being loaded, for errors and for merged layers
options.py        the hk_* quantisation methods: their formats, and their checked options
methods.py        the hk_* methods, without the parts that use an engine's own classes
contract.py       the parameters of an engine's methods that HK relies on
heads.py          LM heads in a quantised format
shared_table.py   an embedding that looks up its rows in a packed head
online.py         a weight that is quantised while it is loaded
contest.py        decides by a contest whether HK or the engine computes a layer
modelled.py       HK's times on an emulated GPU, where nothing can be measured
account.py        after a model is loaded: counts and logs its layers
saving.py         refuses to save a model with packed weights: nothing could load it
"""
