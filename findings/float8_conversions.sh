#!/usr/bin/env bash
# torch and ml_dtypes disagree on numbers that a narrow float type cannot hold.
#
# Seen with torch 2.13.0 (CPU build) and ml_dtypes 0.6.0, on x86-64:
#   - float8_e4m3fn: torch makes the largest number (0x7e) of 1000 and of infinity, ml_dtypes NaN (0x7f).
#     torch 2.7.1 made NaN, too (seen by hand; this script does not install it).
#   - float8_e5m2: both make infinity of them. float8_e4m3fnuz: both make NaN.
#   - float8_e8m0fnu: 0.0 is code 0 (2^-127) in torch and NaN (255) in ml_dtypes; -1.0 is 1.0 (127) in
#     torch and NaN in ml_dtypes.
#   - ml_dtypes makes -0 of a NaN in float4_e2m1fn, float6_e2m3fn and float6_e3m2fn, which have no NaN.
#
#     bash findings/float8_conversions.sh
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
pip install ml_dtypes==0.6.0 numpy
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import ml_dtypes
import numpy as np
import torch

warnings.simplefilter("ignore")  # numpy warns of NaN that is converted
LARGE, INF, NAN = 1000.0, float("inf"), float("nan")
SEEN = {  # type: (values, codes by torch, codes by ml_dtypes); torch has no conversion to 4 and 6 bits
    "float8_e4m3fn": ([LARGE, INF, -INF], [0x7E, 0x7E, 0xFE], [0x7F, 0x7F, 0xFF]),
    "float8_e5m2": ([1e30, INF, -INF], [0x7C, 0x7C, 0xFC], [0x7C, 0x7C, 0xFC]),
    "float8_e4m3fnuz": ([LARGE, INF, -INF], [0x80, 0x80, 0x80], [0x80, 0x80, 0x80]),
    "float8_e8m0fnu": ([0.0, -1.0, 1.0, NAN], [0, 127, 127, 255], [255, 255, 127, 255]),
    "float4_e2m1fn": ([NAN, INF], None, [0x8, 0x7]),
    "float6_e2m3fn": ([NAN, INF], None, [0x20, 0x1F]),
    "float6_e3m2fn": ([NAN, INF], None, [0x20, 0x1F]),
}
failed = False
for name, (values, of_torch, of_ml_dtypes) in SEEN.items():
    numbers = np.array(values, np.float32)
    found = {"ml_dtypes": numbers.astype(getattr(ml_dtypes, name)).view(np.uint8).tolist()}
    if of_torch is not None:
        codes = torch.from_numpy(numbers).to(getattr(torch, name))
        found["torch"] = codes.view(torch.uint8).tolist()
    for library, codes in found.items():
        expected = of_torch if library == "torch" else of_ml_dtypes
        same = codes == expected
        failed |= not same
        told = "" if same else f", was {list(map(hex, expected))}"
        print(f"{library:9} {name:15} {values} -> {list(map(hex, codes))}{told}")
raise SystemExit(failed)
PYTHON
