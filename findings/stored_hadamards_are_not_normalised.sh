#!/usr/bin/env bash
# compressed-tensors stores the matrices of online rotations by kind: a Hadamard matrix as 1 and -1, without its
# factor of 1/sqrt(n), and a random matrix as it multiplies. A reader that takes them alike is off by sqrt(n).
#
# Seen with compressed-tensors 0.20.0 and torch 2.13.0 (CPU build), on x86-64, for blocks of 32: "hadamard" and
# "random-hadamard" are stored with rows of norm 5.657, the square root of 32, and multiply by a matrix with rows
# of norm 1. What "random-matrix" stores is what it multiplies by. No key of the configuration says so. Layers
# that share a matrix share its memory, so a file may hold it once, under the name of any of them.
#
#     bash findings/stored_hadamards_are_not_normalised.sh
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
pip install compressed-tensors==0.20.0
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

warnings.simplefilter("ignore")
import torch
from compressed_tensors.transform import (
    TransformArgs,
    TransformConfig,
    TransformScheme,
    apply_transform_config,
)

BLOCK = 32
ROOT = BLOCK**0.5
SEEN = {"hadamard": ROOT, "random-hadamard": ROOT, "random-matrix": 1.0}
for kind, expected in SEEN.items():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(BLOCK, BLOCK, bias=False) for _ in range(2)))
    args = [TransformArgs(targets=["Linear"], location="input")]
    scheme = TransformScheme(type=kind, head_dim=BLOCK, apply=args)
    apply_transform_config(model, TransformConfig(config_groups={"u": scheme}))
    first, second = (model.state_dict()[f"{layer}.u_input.weight"] for layer in "01")
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(BLOCK))
        applied = model[0](torch.eye(BLOCK))  # the rotation alone
    ratio = float(first.norm() / applied.norm())
    alike = min(float((first - ratio * each).abs().max()) for each in (applied, applied.T))
    shared = first.data_ptr() == second.data_ptr()
    print(f"{kind}: stored is {ratio:.3f} times what multiplies, shared memory: {shared}")
    assert abs(ratio - expected) < 1e-4, f"was {expected}"
    assert alike < 1e-4
    assert shared
PYTHON
