"""A model of how long a kernel takes on a GPU: no figure here was measured."""
