"""Linear layers of an engine, computed by HK: the code that all engines share.

`packed_layer.py`: a layer's weight, checked, packed, released, and named in an error.
`original.py`: the tensors that a weight was packed from, for the reference.
`shards.py`: the shards of a merged layer, their names and their parts.
`checkpoint_tensors.py`: a layer's tensors as a checkpoint holds them, and what is missing.
`checkpoint_rotations.py`: folds, and reloads of other checkpoints.
`rotated.py`: layers with a rotated weight in the checkpoint, which only HK serves.
`compressed_tensors.py`: reads the rotations of weights from compressed-tensors configurations.
`transforms.py`, `auto_round.py`: rotations in the configurations of other tools.
`model_files.py`: names of tensors that are being loaded; refuses to save packed weights.
`options.py`: the hk_* quantisation methods, their formats, and their checked options.
`methods.py`: the hk_* methods, without the parts that use an engine's own classes.
`heads.py`: LM heads in a quantised format.
`shared_table.py`: an embedding that looks up its rows in a packed head.
`online.py`: a weight that is quantised while it is loaded.
`contest.py`: decides by a contest whether HK or the engine computes a layer.
`route.py`: a layer's call of `linear`, counted and checked.
`kept.py`: in a reload, a layer whose new weight cannot be packed keeps its old one.
`account.py`: after a model is loaded, counts and logs its layers.
"""
