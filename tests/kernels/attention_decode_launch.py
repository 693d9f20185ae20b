"""Launches of an attention_decode kernel on the emulator, without the operator in between.

The arguments are derived here once more, from csrc/include/hk/args/attention_decode.hpp.
"""

from __future__ import annotations

import math

import torch

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry
from tests.kernels.attention_launch import Launch, Outcome, Tensors, strides, untouched
from tests.ops.cases import Call, Case, output_of


class DecodeLaunch(Launch):
    """The inputs of one case for one kernel, dealt to `shares` workgroups of each KV head.

    `run` may be repeated: each run takes the workspace as the one before has left it.
    """

    def __init__(self, entry: KernelEntry, case: Case, shares: int) -> None:
        super().__init__(entry, case)
        self._reserve(shares)

    @classmethod
    def shared(cls, entry: KernelEntry, call: Call, shares: int) -> DecodeLaunch:
        """A launch with the operator's arguments `call`, in the kernel's dtype and head size."""
        launch = cls.of(entry, call)
        assert isinstance(launch, DecodeLaunch)
        launch._reserve(shares)
        return launch

    def _reserve(self, shares: int) -> None:
        self.shares = shares
        groups = shares * int(self.numbers["num_kv_heads"])
        words = 2 * groups * self.entry.tile.rows * (self.entry.tile.depth + 2)
        self.partial = untouched(words, dtype=torch.float32)
        self.arrived = torch.zeros(groups, dtype=torch.int32)

    def run(
        self,
        code_object: bytes | None = None,
        *,
        seed: int = 0,
        checks: bool = True,
        with_lse: bool = True,
        merge: bytes | None = None,
    ) -> Outcome:
        query = self.call["query"]
        out = untouched(*output_of(self.call).shape, dtype=query.dtype)
        lse = untouched(query.shape[1], query.shape[0], dtype=torch.float32)
        results: Tensors = {
            "out": out,
            "lse": lse if with_lse else None,
            "partial": self.partial,
            "arrived": self.arrived,
        }
        numbers = {
            **strides("out", out, ("token", "head")),
            **strides("lse", lse, ("head", "token")),
            **dict.fromkeys(("part_keys", "out_part", "lse_part"), 0),
            "parts": 1,
            "shares": self.shares,
        }
        options = {"seed": seed, "checks": checks}
        reports: list[_emulator.Report] = [
            self._launch(self.entry, code_object, results, numbers, options)
        ]
        excess = self._excess(out, lse if with_lse else None)
        if self.arrived.any():  # the counters are to be zero again
            excess = math.inf
            self.arrived.zero_()
        return Outcome(out, lse, reports, excess)
