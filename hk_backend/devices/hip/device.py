"""The hip device: the code objects of the catalogue on an AMD GPU, through HIP's module API.

The emulated device (emulated.py) is this very class with other answers to five questions: which
tensors, their addresses, the stream, what to check of a kernel, and what to do after a launch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import attention
from hk_backend.devices.hip.library import HipError, HipLibrary, mapped_library
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.kernels import Catalogue, CodeObjectError, catalogue
from hk_backend.terms.requests import AttentionRequest, LinearRequest
from hk_backend.terms.verdict import Verdict, refused

logger = logging.getLogger(__name__)

NULL_POINTERS = dict.fromkeys(attention.POINTERS)
"""What a launch hands over for tensors that the call does not have, or that have no element."""


class HipDevice:
    """GPUs of one arch behind one HIP library."""

    tensors_on = "cuda"
    """The torch device type of the tensors that it serves; ROCm's torch says cuda."""
    weight_layout = ""

    def __init__(self, library: HipLibrary, kernels: Catalogue) -> None:
        self.name = f"hip:{kernels.arch}"
        self.library = library
        self.catalogue = kernels
        self._kernels = HipKernels(library, kernels)
        self._verdicts: dict[tuple[str, int], Verdict] = {}

    def supports(self, request: AttentionRequest) -> Verdict:
        """From host facts; the first time for a kernel it also runs the kernel's self-check."""
        if request.device_type != self.tensors_on:
            return refused(f"tensors on {request.device_type} with the device {self.name}")
        verdict = attention.refusal(request, self.catalogue)
        if not verdict:
            return verdict
        keys = "paged" if request.paged else "packed"
        return self.verify(
            attention.kernel_name(request.dtype, request.head_size, keys),
            self._current_index(),
        )

    def verify(self, kernel: str, index: int) -> Verdict:
        """Whether `kernel` may run: its self-check on GPU `index`, once per process.

        The check waits for the GPU, so it belongs where layers are constructed, not into a request.
        """
        known = self._verdicts.get((kernel, index))
        if known is None:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return refused(
                    f"{kernel}: its first use cannot be in a graph capture, call it before"
                )
            known = self._verdicts[kernel, index] = self._checked(kernel, index)
            if not known:
                logger.error("hk_backend: %s", known.why)
        return known

    def attention_prefill(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_start_loc: torch.Tensor,
        key_start_loc: torch.Tensor | None,
        seq_lens: torch.Tensor | None,
        block_table: torch.Tensor | None,
        paged_layout: list[int],
        sinks: torch.Tensor | None,
        alibi_slopes: torch.Tensor | None,
        k_scale: torch.Tensor | None,
        v_scale: torch.Tensor | None,
        scale: float,
        value_factor: float,
        causal: bool,
        sliding_window: int,
        logits_soft_cap: float,
        out: torch.Tensor,
        lse: torch.Tensor | None,
    ) -> None:
        """`hk_backend::attention_prefill`: one launch on torch's current stream, no waiting.

        Raises:
            ValueError: an argument that these kernels do not compute; nothing was launched.
            DeviceError, HipError: the launch failed, or the kernel failed its self-check.
        """
        if query.device.type != self.tensors_on:
            attention.bad("query", f"a tensor on {query.device.type}", self.tensors_on)
        self._check_envelope(query, key, bool(paged_layout), sliding_window, logits_soft_cap)
        for name, tensor in (
            ("sinks", sinks),
            ("alibi_slopes", alibi_slopes),
            ("k_scale", k_scale),
            ("v_scale", v_scale),
        ):
            if tensor is not None:
                attention.bad(name, "a tensor", "None")
        call = attention.prepare(
            query,
            key,
            value,
            query_start_loc,
            key_start_loc,
            seq_lens,
            block_table,
            paged_layout,
            scale,
            value_factor,
            causal,
            out,
            lse,
        )
        if min(call.sizes.values()) < 1:  # no request or no token: nothing to write
            return
        index = self._index(query)
        verdict = self.verify(call.kernel, index)
        if not verdict:
            raise DeviceError(verdict.why)
        self.launch(call, index)

    def launch(self, call: attention.AttentionCall, index: int) -> None:
        """Enqueue a prepared call on the current stream of device `index`."""
        with self._addresses(call) as addresses:
            self._kernels.launch(
                call.kernel,
                index,
                self._stream(index),
                call.sizes,
                **{**NULL_POINTERS, **addresses, **call.numbers},
            )

    def merge_attention(
        self,
        output_a: torch.Tensor,
        lse_a: torch.Tensor,
        output_b: torch.Tensor,
        lse_b: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
    ) -> None:
        """`hk_backend::merge_attention`, in torch: it is bound by memory and rarely called."""
        total = torch.logaddexp(lse_a, lse_b)
        merged = torch.zeros_like(output_a, dtype=torch.float32)
        for part, part_lse in ((output_a, lse_a), (output_b, lse_b)):
            weight = (part_lse - total).exp().T[:, :, None]
            saw_a_key = (part_lse > -torch.inf).T[:, :, None]
            merged += torch.where(saw_a_key, weight * part.float(), 0.0)
        out.copy_(merged)
        lse.copy_(total)

    def supports_linear(self, request: LinearRequest) -> Verdict:
        return refused(f"no linear kernels for {self.catalogue.arch} yet")

    def packed_bytes(self, *args: object) -> NoReturn:
        self._no_linear()

    def pack_weight(self, *args: object) -> NoReturn:
        self._no_linear()

    def linear(self, *args: object) -> NoReturn:
        self._no_linear()

    def quantize_fp8(self, *args: object) -> NoReturn:
        self._no_linear()

    def quantize_mx(self, *args: object) -> NoReturn:
        self._no_linear()

    def _no_linear(self) -> NoReturn:
        raise DeviceError(f"{self.name}: no linear kernels for {self.catalogue.arch} yet")

    def _check_envelope(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        paged: bool,
        sliding_window: int,
        logits_soft_cap: float,
    ) -> None:
        if query.dtype not in attention.DTYPES:
            attention.bad("query", f"{query.dtype}", "bfloat16 or float16")
        if key.dtype != query.dtype:
            attention.bad("key", f"{key.dtype}", f"the dtype of query, {query.dtype}")
        sizes = attention.head_sizes(self.catalogue, query.dtype, paged)
        if query.shape[2] not in sizes:
            attention.bad("query", f"head_size {query.shape[2]}", " or ".join(map(str, sizes)))
        if sliding_window:
            attention.bad("sliding_window", str(sliding_window), "None")
        if logits_soft_cap:
            attention.bad("logits_soft_cap", str(logits_soft_cap), "None")

    def _checked(self, kernel: str, index: int) -> Verdict:
        try:
            return self._self_check(kernel, index)
        except Exception as error:  # torch raises what a kernel did when it waits for it
            why = f"{type(error).__name__}: {error}"
            return refused(f"{kernel} cannot run on device {index} of {self.name}: {why}")

    # --- what the emulated device answers otherwise ---------------------------------------------

    def _self_check(self, kernel: str, index: int) -> Verdict:
        """The kernel's verdict on device `index`; whatever it raises is one, too."""
        from hk_backend.devices.hip.self_check import self_check

        return self_check(self, kernel, index)

    def torch_device(self, index: int) -> torch.device:
        """Where torch keeps the tensors of device `index`."""
        return torch.device(self.tensors_on, index)

    def _current_index(self) -> int:
        return torch.cuda.current_device()

    def _index(self, tensor: torch.Tensor) -> int:
        """The device of a tensor, as HIP counts."""
        index: int = tensor.device.index
        return index

    def _stream(self, index: int) -> int:
        """The handle of torch's current stream; 0 is its default, the null stream."""
        handle: int = torch.cuda.current_stream(index).cuda_stream
        return handle

    @contextmanager
    def _addresses(self, call: attention.AttentionCall) -> Iterator[dict[str, int]]:
        """Where the device finds each tensor, while the launch is being made."""
        yield {name: tensor.data_ptr() for name, tensor in call.tensors.items()}


@cache
def hip_device() -> HipDevice:
    """The GPUs of this machine.

    Raises:
        DeviceError: no HIP runtime, no GPU, or no kernels for its arch.
    """
    library = mapped_library()
    try:
        if not library.device_count():
            raise DeviceError(f"the HIP runtime {library.path} sees no GPU")
        return HipDevice(library, catalogue(library.arch(0)))
    except (HipError, CodeObjectError) as error:
        raise DeviceError(str(error)) from error
