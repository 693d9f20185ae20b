"""The GPU kernels as data: their catalogue, and the plans that choose among them."""

from hk_backend.kernels.arguments import ArgumentError
from hk_backend.kernels.catalogue import Catalogue, Family, NoKernel, arches, catalogue
from hk_backend.kernels.entry import CodeObjectError, Fact, KernelEntry, pack_arguments

__all__ = [
    "ArgumentError",
    "Catalogue",
    "CodeObjectError",
    "Fact",
    "Family",
    "KernelEntry",
    "NoKernel",
    "arches",
    "catalogue",
    "pack_arguments",
]
