#!/usr/bin/env bash
# Tools choose different scales for the same block of MXFP4, so a reader must not choose one itself.
#
# Seen with gguf 0.19.0, torchao 0.18.0, compressed-tensors 0.20.0 and torch 2.13.0 (CPU build), on x86-64: the
# exponent code of a block whose largest value is 7.0 is 127 (2^0: 7 becomes 6) by gguf and by torchao's FLOOR,
# and 128 (2^1: 7 becomes 8) by torchao's RCEIL, CEIL and EVEN and by compressed-tensors. With 6.0, 6.5 and 8.0
# they differ elsewhere; see SEEN.
#
#     bash findings/mxfp4_scale_rules.sh
#
# needs Python 3.10 or newer and the network, installs into a temporary folder, and fails where one of
# these answers is another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip() { "$folder/venv/bin/pip" --quiet "$@"; }
# the index that pip knows, else PyTorch's own
pip install torch==2.13.0+cpu 2>/dev/null ||
  pip install --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
pip install torchao==0.18.0 compressed-tensors==0.20.0 gguf==0.19.0
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

warnings.simplefilter("ignore")
import gguf
import numpy as np
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx

BLOCK = 32
LARGEST = [6.0, 6.5, 7.0, 8.0]
SEEN = {
    "gguf": [127, 127, 127, 128],
    "torchao FLOOR": [127, 127, 127, 128],
    "torchao RCEIL": [127, 128, 128, 128],
    "torchao CEIL": [128, 128, 128, 128],
    "torchao EVEN": [127, 127, 128, 128],
    "compressed-tensors": [127, 127, 128, 128],
}
blocks = torch.full((len(LARGEST), BLOCK), 0.5)
blocks[:, 0] = torch.tensor(LARGEST)

mxfp4 = gguf.quants.quantize(blocks.numpy(), gguf.GGMLQuantizationType.MXFP4)
found = {"gguf": mxfp4.reshape(len(LARGEST), -1)[:, 0].tolist()}  # the first of a block's 17 bytes
for mode in ScaleCalculationMode:
    scales, _ = to_mx(blocks, torch.float4_e2m1fn_x2, BLOCK, mode)
    found[f"torchao {mode.name}"] = scales.view(torch.uint8).flatten().tolist()
arguments = QuantizationArgs(
    num_bits=4, type="float", strategy="group", group_size=BLOCK, scale_dtype=torch.uint8
)
scales, _ = calculate_qparams(blocks.amin(1, keepdim=True), blocks.amax(1, keepdim=True), arguments)
exponents = scales if scales.dtype == torch.uint8 else scales.log2() + 127
found["compressed-tensors"] = exponents.flatten().int().tolist()

for tool, codes in found.items():
    told = "" if codes == SEEN[tool] else f", was {SEEN[tool]}"
    print(f"{tool:18} largest values {LARGEST} -> exponent codes {codes}{told}")
raise SystemExit(found != SEEN)
PYTHON
