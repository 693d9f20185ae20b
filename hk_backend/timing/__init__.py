"""How long a kernel takes on a GPU, by a model: no figure here was measured."""
