"""The GPU kernels as data: their catalogue, their build and the analysis of their code."""

from hk_backend.kernels.arguments import ArgumentError
from hk_backend.kernels.catalogue import (
    Catalogue,
    CodeObjectError,
    KernelEntry,
    arches,
    catalogue,
    pack_arguments,
)

__all__ = [
    "ArgumentError",
    "Catalogue",
    "CodeObjectError",
    "KernelEntry",
    "arches",
    "catalogue",
    "pack_arguments",
]
