"""`pack_weight` on a GPU: packs in torch (weight_layout.py), and reserves the layer's workspace."""

from __future__ import annotations

from hk_backend.devices.hip.linear import workspace_bytes
from hk_backend.devices.hip.operator import Gpus, HipOperator
from hk_backend.devices.hip.weight_layout import pack
from hk_backend.terms.linear_arguments import PackWeightArguments


class PackWeight(HipOperator):
    """Torch's own kernels."""

    def run(self, arguments: PackWeightArguments, gpus: Gpus) -> None:
        pack(arguments)
        index = gpus.memory.index(arguments.data)
        units = gpus.gpu(index).compute_units
        gpus.workspaces.reserve(index, workspace_bytes(arguments, gpus.catalogue, units))


OPERATOR = PackWeight()
