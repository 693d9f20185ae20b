"""The hk_* quantisation methods, without the parts that use an engine's own classes.

An engine's classes derive from these and from the engine's base class.

Online, on a bf16, fp16 or fp32 checkpoint: each linear layer is quantised as soon as it is loaded,
so the model is never in memory in its own dtype.

A checkpoint's config.json may ask for a method, too. The options are keys of its
`quantization_config`. Every layer has the tensors `weight` and `weight_scale`, in the layouts of
`hk_backend.ops.pack_weight` (FP8 scales `[N, 1]`):

    "quantization_config": {"quant_method": "hk_mxfp6", "format": "mxfp6_e3m2", "ignore": [...]}

The options are in hk_backend.engine.linear.options. Embeddings are never quantised, and the LM head
only with the option `head`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from hk_backend.engine.linear.options import FORMATS_OF, Options, choose, no_layer
from hk_backend.engine.linear.packed_layer import FORMAT_OF
from hk_backend.engine.linear.rotated import verdict_on_shards
from hk_backend.engine.linear.shards import name_of
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import SERVED, Verdict


def free_names(
    ours: Mapping[str, type], registered: Callable[[str], Any], logger: logging.Logger
) -> list[str]:
    """Names of HK's methods that are still free; logs those of another plugin.

    Args:
        ours: HK's methods by name.
        registered: returns the engine's method of a name, or None.
    """
    free = []
    for name, method in ours.items():
        found = registered(name)
        if found is None:
            free.append(name)
        elif found is not method:
            path = f"{found.__module__}.{found.__qualname__}"
            said = "hk_backend: --quantization %s stays %s, which another plugin registered"
            logger.warning(said, name, path)
    return free


class MethodConfig:
    """A quantisation method with its options.

    Args:
        serialized: whether the checkpoint holds quantised weights.
        options: those of `choose`.

    Raises:
        ValueError: an option has a value that it cannot have.
    """

    hk_method: ClassVar[str] = "hk_fp8"

    def __init__(self, serialized: bool = False, **options: Any) -> None:
        super().__init__()
        fp8_format = FORMAT_OF[self.fp8_dtype()]
        self.options = choose(self.hk_method, fp8_format, serialized=serialized, **options)
        self.serialized = serialized

    @staticmethod
    def fp8_dtype() -> torch.dtype:
        """FP8 dtype of the platform."""
        raise NotImplementedError

    def get_name(self) -> str:
        return self.hk_method

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0  # a device's limits are in its envelope

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []


def config_classes(base: type, module: str) -> dict[str, type]:
    """Makes a class of the engine's `base` for each method, by name.

    Processes that an engine spawns find the classes by pickle, as attributes of `module`. The
    module itself has to add them.
    """
    return {
        name: type(f"Config_{name}", (base,), {"hk_method": name, "__module__": module})
        for name in FORMATS_OF
    }


class LinearMethod:
    """A method of layers that only HK can compute; `name` is what the user asked for."""

    verdict_on: ClassVar[staticmethod[[LinearRequest], Verdict]]
    """The engine's verdict."""
    device_type: ClassVar[staticmethod[[], str]]
    """Returns torch's type of the device that the engine creates layers on."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__()
        self.name, self.options = name, options

    def create_weights(
        self,
        layer: Any,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """Creates the parameters of a layer.

        Raises:
            ValueError: HK does not serve the layer.
        """
        layer.logical_widths = output_partition_sizes
        n, k = sum(output_partition_sizes), input_size_per_partition
        rotation = self.options.rotation
        verdict = verdict_on_shards(k, rotation, input_size // k) if rotation else SERVED
        activations, rotation = self.options.rounding(k)
        facts = self.device_type(), params_dtype, self.options.format, n, k, activations
        request = LinearRequest(*facts, rotation=rotation)
        verdict = verdict and self.reads(layer, rotation) and self.verdict_on(request)
        if not verdict:
            raise no_layer(self.name, name_of(layer), verdict.why)
        self.register(layer, n, k, params_dtype, extra.get("weight_loader"))

    def reads(self, layer: Any, rotation: int) -> Verdict:
        """Whether the engine lets HK read the weight of `layer` for itself, rotated or not."""
        raise NotImplementedError

    def register(self, layer: Any, n: int, k: int, dtype: torch.dtype, loader: Any) -> None:
        """Gives `layer` the parameters that the checkpoint's tensors go into."""
        raise NotImplementedError
