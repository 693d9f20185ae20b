"""Checks of what the linear route relies on in vLLM, before anything is patched."""

from __future__ import annotations

from hk_backend.engine.contract import (
    APPLY,
    CREATE_WEIGHTS,
    PROCESS,
    has_fields,
    has_members,
    has_parameters,
    verdict_of,
)
from hk_backend.terms.verdict import Verdict


def check_linear() -> Verdict:
    """Whether this vLLM has the classes, signatures and members that the linear route needs."""
    return verdict_of(_layers, _kernel_lists, _kernels, _codes, _schemes, _quantization, _loading)


def _layers() -> list[Verdict]:
    from vllm import envs
    from vllm.model_executor.layers import (
        fused_moe,
        linear,
        logits_processor,
        vocab_parallel_embedding,
    )

    embedding = vocab_parallel_embedding.UnquantizedEmbeddingMethod
    return [
        has_parameters(linear.UnquantizedLinearMethod.apply, APPLY),
        has_parameters(embedding.apply, APPLY),
        has_parameters(embedding.embedding, ("self", "layer", "input_")),
        has_parameters(linear.UnquantizedLinearMethod.process_weights_after_loading, PROCESS),
        has_parameters(embedding.process_weights_after_loading, PROCESS),
        has_parameters(linear.LinearMethodBase.create_weights, CREATE_WEIGHTS),
        has_members(linear, ("LinearBase", "register_weight_loader_v2_supported_method")),
        has_members(vocab_parallel_embedding, ("ParallelLMHead", "VocabParallelEmbedding")),
        has_members(logits_processor, ("LogitsProcessor",)),
        has_members(fused_moe, ("RoutedExperts", "UnquantizedFusedMoEMethod")),
        has_members(envs, ("VLLM_BATCH_INVARIANT",)),
    ]


def _kernel_lists() -> list[Verdict]:
    from vllm.model_executor.kernels import linear

    names = ("FP8", "FP8_BLOCK", "WFP8A16", "MXFP8", "MXFP6", "MXFP4")
    return [
        has_members(linear, tuple(f"_POSSIBLE_{name}_KERNELS" for name in names)),
        has_parameters(
            linear.is_supported_and_can_implement_kernel, ("kernel", "config", "compute_capability")
        ),
    ]


def _kernels() -> list[Verdict]:
    from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
    from vllm.model_executor.kernels.linear.mxfp6.base import MxFp6LinearKernel
    from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearKernel
    from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import (
        FP8BlockParams,
        Fp8BlockScaledMMLinearKernel,
    )
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
        FP8ScaledMMLinearKernel,
        FP8ScaledMMLinearLayerConfig,
    )

    config = ("weight_quant_key", "activation_quant_key", "weight_shape", "input_dtype")
    bases = (
        FP8ScaledMMLinearKernel,
        Fp8BlockScaledMMLinearKernel,
        Mxfp8LinearKernel,
        MxFp6LinearKernel,
        MxFp4LinearKernel,
    )
    return [
        *(has_parameters(base.apply_weights, APPLY) for base in bases),
        *(has_parameters(base.process_weights_after_loading, PROCESS) for base in bases),
        *(has_parameters(base.is_supported, ("compute_capability",)) for base in bases),
        has_members(FP8BlockParams, ("block_scale", "block_scale_attr")),
        has_fields(FP8ScaledMMLinearLayerConfig, (*config, "out_dtype")),
    ]


def _codes() -> list[Verdict]:
    from vllm.model_executor.layers.fusion import quant_activation
    from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8

    return [
        has_parameters(quant_activation.as_quantized_activation, ("x", "expected_key")),
        has_parameters(quant_activation.expose_input_quant_key, ("layer", "kernel")),
        has_fields(
            quant_activation.QuantizedActivation, ("data", "scale", "orig_dtype", "orig_shape")
        ),
        has_parameters(QuantFP8.forward_native, ("self", "x", "scale")),
    ]


def _schemes() -> list[Verdict]:
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

    from hk_vllm.linear.checkpoints import METHODS

    process = "process_weights_after_loading"
    return [
        *(has_parameters(getattr(each, process), PROCESS) for each in METHODS),
        *(has_parameters(each.create_weights, ("self", "layer")) for each in METHODS),
        has_parameters(
            CompressedTensorsConfig._get_scheme_from_parts, ("self", "weight_quant", "input_quant")
        ),
        has_parameters(CompressedTensorsConfig._quantization_scheme_map_from_config, ("config",)),
        has_parameters(CompressedTensorsConfig.get_scheme_dict, ("self", "layer", "layer_name")),
        has_members(GroupShape, ("is_per_tensor", "is_per_token", "is_per_channel")),
    ]


def _quantization() -> list[Verdict]:
    from vllm.model_executor.layers import quantization
    from vllm.model_executor.layers.quantization.base_config import (
        QuantizationConfig,
        QuantizeMethodBase,
    )
    from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
    from vllm.model_executor.model_loader.reload.layerwise import initialize_online_processing

    return [
        has_parameters(quantization.register_quantization_config, ("quantization",)),
        has_members(quantization, ("QUANTIZATION_METHODS",)),
        has_parameters(QuantizationConfig.get_quant_method, ("self", "layer", "prefix")),
        has_members(QuantizeMethodBase, ("uses_meta_device",)),
        has_parameters(BaseKVCacheMethod.__init__, ("self", "quant_config")),
        has_parameters(initialize_online_processing, ("layer",)),
    ]


def _loading() -> list[Verdict]:
    from vllm.config import KernelConfig
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
    from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader
    from vllm.model_executor.utils import is_weights_pre_processed

    return [
        has_parameters(BaseModelLoader.load_model, ("self", "vllm_config", "model_config")),
        has_parameters(DefaultModelLoader.load_weights, ("self", "model", "model_config")),
        has_parameters(DefaultModelLoader.get_all_weights, ("self", "model_config", "model")),
        has_parameters(ShardedStateLoader.save_model, ("model", "path")),
        has_parameters(TensorizerLoader.save_model, ("model", "tensorizer_config")),
        has_parameters(is_weights_pre_processed, ()),
        has_fields(KernelConfig, ("linear_backend",)),
    ]
