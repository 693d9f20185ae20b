"""Checks of what the linear route relies on in vLLM, before anything is patched."""

from __future__ import annotations

from collections.abc import Iterator

from hk_backend.engine.contract import APPLY, CREATE_WEIGHTS, PROCESS, keeps, verdict_of
from hk_backend.terms.verdict import Verdict

KERNEL = (f"apply_weights{APPLY}", PROCESS, "is_supported(compute_capability)")

CONTRACT = {
    # layers
    "vllm.envs": ("VLLM_BATCH_INVARIANT",),
    "vllm.model_executor.layers.fused_moe": ("RoutedExperts", "UnquantizedFusedMoEMethod"),
    "vllm.model_executor.layers.linear": (
        "LinearBase",
        "register_weight_loader_v2_supported_method",
        f"UnquantizedLinearMethod.apply{APPLY}",
        f"UnquantizedLinearMethod.{PROCESS}",
        f"LinearMethodBase.{CREATE_WEIGHTS}",
    ),
    "vllm.model_executor.layers.logits_processor": ("LogitsProcessor",),
    "vllm.model_executor.layers.vocab_parallel_embedding": (
        "ParallelLMHead",
        "VocabParallelEmbedding",
        f"UnquantizedEmbeddingMethod.apply{APPLY}",
        "UnquantizedEmbeddingMethod.embedding(self, layer, input_)",
        f"UnquantizedEmbeddingMethod.{PROCESS}",
    ),
    # kernels
    "vllm.model_executor.kernels.linear": (
        *(
            f"_POSSIBLE_{name}_KERNELS"
            for name in ("FP8", "FP8_BLOCK", "WFP8A16", "MXFP8", "MXFP6", "MXFP4")
        ),
        "is_supported_and_can_implement_kernel(kernel, config, compute_capability)",
    ),
    "vllm.model_executor.kernels.linear.mxfp4.base": (
        *(f"MxFp4LinearKernel.{line}" for line in KERNEL),
    ),
    "vllm.model_executor.kernels.linear.mxfp6.base": (
        *(f"MxFp6LinearKernel.{line}" for line in KERNEL),
    ),
    "vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel": (
        *(f"Mxfp8LinearKernel.{line}" for line in KERNEL),
    ),
    "vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel": (
        *(f"Fp8BlockScaledMMLinearKernel.{line}" for line in KERNEL),
        "FP8BlockParams has block_scale, block_scale_attr",
    ),
    "vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel": (
        *(f"FP8ScaledMMLinearKernel.{line}" for line in KERNEL),
        "FP8ScaledMMLinearLayerConfig has fields weight_quant_key, activation_quant_key, "
        "weight_shape, input_dtype, out_dtype",
    ),
    # activations that vLLM rounds
    "vllm.model_executor.layers.fusion.quant_activation": (
        "as_quantized_activation(x, expected_key)",
        "expose_input_quant_key(layer, kernel)",
        "QuantizedActivation has fields data, scale, orig_dtype, orig_shape",
    ),
    "vllm.model_executor.layers.quantization.input_quant_fp8": (
        "QuantFP8.forward_native(self, x, scale)",
    ),
    # schemes
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors": (
        "CompressedTensorsConfig._get_scheme_from_parts(self, weight_quant, input_quant)",
        "CompressedTensorsConfig._quantization_scheme_map_from_config(config)",
        "CompressedTensorsConfig.get_scheme_dict(self, layer, layer_name)",
        "CompressedTensorsConfig.get_quant_method(self, layer, prefix)",
    ),
    "vllm.model_executor.layers.quantization.compressed_tensors.transform.linear": (
        "CompressedTensorsLinearTransformMethod.__init__(self, quant_method, input_tfms, "
        "output_tfms)",
    ),
    "vllm.model_executor.layers.quantization.inc.config_parser": (
        "INCConfigParser.resolve(self, layer, layer_name)",
    ),
    "vllm.model_executor.layers.quantization.inc.inc": (
        "INCConfig.from_config(config)",
        "INCConfig.get_quant_method(self, layer, prefix)",
    ),
    "vllm.model_executor.layers.quantization.utils.quant_utils": (
        "GroupShape has is_per_tensor, is_per_token, is_per_channel",
    ),
    # quantisation while loading
    "vllm.model_executor.layers.quantization": (
        "register_quantization_config(quantization)",
        "QUANTIZATION_METHODS",
    ),
    "vllm.model_executor.layers.quantization.base_config": (
        "QuantizationConfig.get_quant_method(self, layer, prefix)",
        "QuantizeMethodBase.uses_meta_device",
    ),
    "vllm.model_executor.layers.quantization.kv_cache": (
        "BaseKVCacheMethod.__init__(self, quant_config)",
    ),
    "vllm.model_executor.model_loader.reload.layerwise": ("initialize_online_processing(layer)",),
    # loading
    "vllm.config": ("KernelConfig has fields linear_backend",),
    "vllm.model_executor.model_loader.base_loader": (
        "BaseModelLoader.load_model(self, vllm_config, model_config)",
    ),
    "vllm.model_executor.model_loader.default_loader": (
        "DefaultModelLoader.load_weights(self, model, model_config)",
        "DefaultModelLoader.get_all_weights(self, model_config, model)",
    ),
    "vllm.model_executor.model_loader.sharded_state_loader": (
        "ShardedStateLoader.save_model(model, path)",
    ),
    "vllm.model_executor.model_loader.tensorizer_loader": (
        "TensorizerLoader.save_model(model, tensorizer_config)",
    ),
    "vllm.model_executor.utils": ("is_weights_pre_processed()",),
}
"""The classes, signatures and members that the linear route needs."""


def check_linear() -> Verdict:
    """Whether this vLLM has what the linear route needs."""
    return verdict_of(CONTRACT, _methods)


def _methods() -> Iterator[Verdict]:
    from hk_vllm.linear.checkpoints import METHODS

    for method in METHODS:
        yield keeps(method, (PROCESS, "create_weights(self, layer)"))
