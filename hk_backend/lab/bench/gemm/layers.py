"""Linear layers of Llamas on a GPU, merged and sharded as engines do it, with HK's launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_operands import Operands, operands_of
from hk_backend.kernels.gemm_plan import Candidate
from hk_backend.measurements.launches import Launches

HEAD_SIZE = 128


@dataclass(frozen=True)
class Llama:
    """Sizes from a model's config."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int

    def weights(self, ranks: int) -> dict[str, tuple[int, int]]:
        """Shapes `(n, k)` of a GPU's weights, by layer, with the model on `ranks` GPUs.

        Raises `ValueError` if the model cannot be divided evenly among so many GPUs.
        """
        if self.heads % ranks or self.intermediate % ranks:
            raise ValueError(f"{ranks} GPUs do not divide {self.heads} heads evenly")
        kv_heads = max(self.kv_heads // ranks, 1)
        heads = self.heads // ranks
        return {
            "qkv": ((heads + 2 * kv_heads) * HEAD_SIZE, self.hidden),
            "o": (self.hidden, heads * HEAD_SIZE),
            "gate_up": (2 * self.intermediate // ranks, self.hidden),
            "down": (self.hidden, self.intermediate // ranks),
        }


@dataclass(frozen=True)
class Layer:
    """One kind of layer on one GPU.

    `format`: a key of `gemm_operands.LAYERS`. `family`: one or more kernels that serve the layer.
    `timed`: launches that were timed on the GPU.
    """

    format: str
    n: int
    k: int
    family: Family
    compute_units: int
    timed: Launches

    def __str__(self) -> str:
        return f"{self.format} {self.n}x{self.k}"

    @property
    def of(self) -> Operands:
        """The format of both operands."""
        return operands_of(self.family[0])

    def launch(self, m: int) -> Candidate:
        """HK's launch for M rows."""
        return self.timed.choose(self.family, m, self.n, self.k, self.compute_units)


MODELS: Mapping[str, Llama] = {
    "llama8b": Llama(4096, 14336, 32, 8),
    "llama70b": Llama(8192, 28672, 64, 8),
}


def weights(model: str, ranks: int = 1) -> dict[str, tuple[int, int]]:
    """Shapes `(n, k)` of a model's weights, by names such as `llama8b-qkv` or `llama8b-qkv/tp8`.

    Raises `ValueError` if the model cannot be divided evenly among `ranks` GPUs.
    """
    tp = f"/tp{ranks}" if ranks > 1 else ""
    found = MODELS[model].weights(ranks).items()
    return {f"{model}-{layer}{tp}": shape for layer, shape in found}


def name_of(n: int, k: int) -> str:
    """Name of the weight of this shape in a model on one GPU or on eight; else `NxK`."""
    every = (named for of in MODELS for ranks in (1, 8) for named in weights(of, ranks).items())
    return next((name for name, shape in every if shape == (n, k)), f"{n}x{k}")
