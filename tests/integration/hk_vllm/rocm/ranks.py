"""What a rank of an engine imports: vLLM spawns its process, and asks for `Rank` before it makes
the worker (`worker_extension_cls`). The scenario's parent is in place from then on."""

from __future__ import annotations

import os

from tests.integration.hk_vllm.rocm.runner import SERVED_BY, place

place(os.environ[SERVED_BY])


class Rank:
    """Nothing on top of vLLM's worker."""
