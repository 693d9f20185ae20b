"""`pack_weight` on a GPU: packs in torch (weight_layout.py), and reserves the layer's workspace."""

from __future__ import annotations

import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.linear import workspace_bytes
from hk_backend.devices.hip.linear_family import ROTATES_ALONE, family_of
from hk_backend.devices.hip.operator import Gpus, HipOperator
from hk_backend.devices.hip.weight_layout import pack
from hk_backend.terms.linear_arguments import PackWeightArguments
from hk_backend.terms.weight_format import FORMATS


class PackWeight(HipOperator):
    """Torch's own kernels."""

    def run(self, arguments: PackWeightArguments, gpus: Gpus) -> None:
        of, arch = arguments, gpus.catalogue.arch
        x = FORMATS[of.format].of_activations(of.activations) or torch.bfloat16
        rotates_alone = of.activations == ROTATES_ALONE
        is_there = not rotates_alone and family_of(gpus.catalogue, of.format, x)
        if FORMATS[of.format].is_mx and not is_there:
            layer = f"{of.format} weights with activations {of.activations!r}"
            raise DeviceError(f"{layer}: no such kernels for {arch} yet")
        pack(of)
        index = gpus.memory.index(arguments.data)
        units = gpus.gpu(index).compute_units
        gpus.workspaces.reserve(index, workspace_bytes(arguments, gpus.catalogue, units))


OPERATOR = PackWeight()
