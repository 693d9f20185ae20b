"""Checks of what the linear route relies on in SGLang, before anything is patched."""

from __future__ import annotations

from collections.abc import Iterator

from hk_backend.engine.contract import APPLY, CREATE_WEIGHTS, PROCESS, keeps, verdict_of
from hk_backend.terms.verdict import Verdict

LINEAR = (
    "__init__(self, input_size, output_size, skip_bias_add, params_dtype, quant_config, prefix)"
)

CONTRACT = {
    # layers
    "sglang.srt.layers.linear": (f"LinearBase.{LINEAR}", "WEIGHT_LOADER_V2_SUPPORTED"),
    "sglang.srt.layers.logits_processor": (
        "LogitsProcessor._compute_lm_head(self, hidden_states, lm_head, embedding_bias)",
    ),
    "sglang.srt.layers.moe.fused_moe_triton.layer": ("FusedMoE",),
    "sglang.srt.layers.parameter": (
        "BasevLLMParameter",
        *(f"{kind}Parameter" for kind in ("ModelWeight", "PerTensorScale")),
        *(f"{kind}QuantScaleParameter" for kind in ("Channel", "Block", "Group")),
    ),
    "sglang.srt.layers.vocab_parallel_embedding": ("ParallelLMHead", "VocabParallelEmbedding"),
    "sglang.srt.layers.quantization.base_config": (f"LinearMethodBase.{CREATE_WEIGHTS}",),
    "sglang.srt.layers.quantization.unquant": (
        f"UnquantizedLinearMethod.{PROCESS}",
        f"UnquantizedLinearMethod.apply{APPLY}",
        "UnquantizedLinearMethod.apply_with_addend(self, layer, x, addend, bias)",
        "UnquantizedLinearMethod.apply_into(self, layer, x, output, bias)",
        f"UnquantizedEmbeddingMethod.{PROCESS}",
        "UnquantizedEmbeddingMethod.embedding(self, layer, input_)",
    ),
    # quantisation
    "sglang.srt.layers.quantization": (
        *(f"{prefix}QUANTIZATION_METHODS" for prefix in ("", "BASE_", "CPU_")),
    ),
    "sglang.srt.layers.quantization.auto_round": ("AutoRoundConfig.from_config(config)",),
    "sglang.srt.layers.quantization.compressed_tensors.compressed_tensors": (
        "CompressedTensorsConfig._quantization_scheme_map_from_config(config)",
        "CompressedTensorsConfig.get_linear_scheme(self, layer, layer_name, matched_target)",
    ),
    # loading
    "sglang.srt.managers.scheduler_components.weight_updater": (
        "SchedulerWeightUpdaterManager.end_weight_update(self, recv_req)",
        "_export_static_state(model)",
    ),
    "sglang.srt.managers.tokenizer_manager": ("TokenizerManager._tokenize_one_request(self, obj)",),
    "sglang.srt.model_executor.model_runner": ("ModelRunner.load_model(self)",),
    "sglang.srt.model_executor.model_runner_components.weight_exporter": (
        "WeightExporter.get_weights_by_name(self, name)",
    ),
    "sglang.srt.model_executor.model_runner_components.weight_updater": (
        "_model_load_weights_direct(model, named_tensors)",
        "WeightUpdater.update_weights_from_disk(self, model_path, load_format)",
    ),
    "sglang.srt.model_executor.runner_utils.capture_mode": ("get_is_capture_mode",),
    "sglang.srt.model_loader.loader": (
        "DefaultModelLoader.load_weights_only(model, weights, target_device)",
        "initialize_dummy_weights(model)",
        "ShardedStateLoader.save_model(model, path)",
        "RemoteModelLoader.save_model(model, model_path)",
        "PreshardedModelLoader",
        "RemoteInstanceModelLoader",
    ),
    # plugins
    "sglang.srt.configs.model_config": (
        "ModelConfig._verify_quantization(self)",
        "ModelConfig._parse_quant_hf_config",
    ),
    "sglang.srt.plugins.hook_registry": (
        "HookRegistry.register(target, hook, hook_type)",
        "HookType.AROUND",
    ),
    "sglang.srt.server_args": ("add_quantization_method_choices",),
}
"""The classes, signatures and members that the linear route needs."""


def check_linear() -> Verdict:
    """Whether this SGLang has what the linear route needs."""
    return verdict_of(CONTRACT, _configurations)


def _configurations() -> Iterator[Verdict]:
    from hk_sglang.linear.schemes import CONFIGS

    for config in CONFIGS:
        yield keeps(config, ["get_quant_method(self, layer, prefix)"])
