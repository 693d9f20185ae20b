"""Parameters that the methods of linear layers have in all engines."""

CREATE_WEIGHTS = (
    "self",
    "layer",
    "input_size_per_partition",
    "output_partition_sizes",
    "input_size",
    "output_size",
    "params_dtype",
)
APPLY = ("self", "layer", "x", "bias")
PROCESS = ("self", "layer")
