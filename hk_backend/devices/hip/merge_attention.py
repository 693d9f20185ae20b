"""`merge_attention` on a GPU, computed in torch, as it is memory-bound and rarely called."""

from __future__ import annotations

import torch

from hk_backend.devices.hip.operator import Gpus, HipOperator
from hk_backend.terms.attention_arguments import MergeArguments


class MergeAttention(HipOperator):
    """Torch's own kernels."""

    def run(self, arguments: MergeArguments, gpus: Gpus) -> None:
        of = arguments
        total = torch.logaddexp(of.lse_a, of.lse_b)
        merged = torch.zeros_like(of.output_a, dtype=torch.float32)
        for part, part_lse in ((of.output_a, of.lse_a), (of.output_b, of.lse_b)):
            weight = (part_lse - total).exp().T[:, :, None]
            saw_a_key = (part_lse > -torch.inf).T[:, :, None]
            merged += torch.where(saw_a_key, weight * part.float(), 0.0)
        of.out.copy_(merged)
        of.lse.copy_(total)


OPERATOR = MergeAttention()
