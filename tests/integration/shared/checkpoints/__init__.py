"""Quantised checkpoints as other tools write them, beside the truth about what they mean.

`make(scheme, source, folder)` writes two models: the quantised one, for an engine, and its *truth*
for transformers: the same model with the float32 values that its codes stand for, and in
`activations.json` how each layer's input is rounded. Scales and codes come from the tools' own
libraries, torch and ml_dtypes: nothing here was computed by HK.
"""

from tests.integration.shared.checkpoints.scheme import WIDTHS, K, Made, Scheme, Shards, make, x_of
from tests.integration.shared.checkpoints.schemes import LAYERS, SCHEMES

__all__ = ["LAYERS", "SCHEMES", "WIDTHS", "K", "Made", "Scheme", "Shards", "make", "x_of"]
