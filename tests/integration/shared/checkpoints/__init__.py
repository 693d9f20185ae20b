"""Quantised checkpoints as other tools write them, with the truth about each one.

`make(scheme, source, folder)` writes two models. One is quantised, for an engine. The other is its
*truth*, for transformers: the same model with the float32 values that the codes stand for. The
truth's `activations.json` says how each layer's input is rounded. Scales and codes come from the
tools' own libraries, torch and ml_dtypes. HK computed nothing here.
"""

from tests.integration.shared.checkpoints.scheme import WIDTHS, K, Made, Scheme, Shards, make, x_of
from tests.integration.shared.checkpoints.schemes import LAYERS, SCHEMES

__all__ = ["LAYERS", "SCHEMES", "WIDTHS", "K", "Made", "Scheme", "Shards", "make", "x_of"]
