"""Checks of what the linear route relies on in SGLang, before anything is patched."""

from __future__ import annotations

from hk_backend.engine.contract import (
    APPLY,
    CREATE_WEIGHTS,
    PROCESS,
    has_members,
    has_parameters,
    verdict_of,
)
from hk_backend.terms.verdict import Verdict

LINEAR = (
    "self",
    "input_size",
    "output_size",
    "skip_bias_add",
    "params_dtype",
    "quant_config",
    "prefix",
)


def check_linear() -> Verdict:
    """Whether this SGLang has the classes, signatures and members that the linear route needs."""
    return verdict_of(_layers, _quantization, _loading, _plugins)


def _layers() -> list[Verdict]:
    from sglang.srt.layers import linear, parameter, vocab_parallel_embedding
    from sglang.srt.layers.logits_processor import LogitsProcessor
    from sglang.srt.layers.moe.fused_moe_triton import layer
    from sglang.srt.layers.quantization import base_config, unquant

    method = unquant.UnquantizedLinearMethod
    embedding = unquant.UnquantizedEmbeddingMethod
    parameters = tuple(f"{kind}Parameter" for kind in ("ModelWeight", "PerTensorScale"))
    scales = tuple(f"{kind}QuantScaleParameter" for kind in ("Channel", "Block", "Group"))
    return [
        has_parameters(linear.LinearBase.__init__, LINEAR),
        has_members(linear, ("WEIGHT_LOADER_V2_SUPPORTED",)),
        has_parameters(method.process_weights_after_loading, PROCESS),
        has_parameters(method.apply, APPLY),
        has_parameters(method.apply_with_addend, ("self", "layer", "x", "addend", "bias")),
        has_parameters(method.apply_into, ("self", "layer", "x", "output", "bias")),
        has_parameters(embedding.process_weights_after_loading, PROCESS),
        has_parameters(embedding.embedding, ("self", "layer", "input_")),
        has_parameters(base_config.LinearMethodBase.create_weights, CREATE_WEIGHTS),
        has_parameters(
            LogitsProcessor._compute_lm_head,
            ("self", "hidden_states", "lm_head", "embedding_bias"),
        ),
        has_members(vocab_parallel_embedding, ("ParallelLMHead", "VocabParallelEmbedding")),
        has_members(parameter, ("BasevLLMParameter", *parameters, *scales)),
        has_members(layer, ("FusedMoE",)),
    ]


def _quantization() -> list[Verdict]:
    from sglang.srt.layers import quantization
    from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )

    from hk_sglang.linear.schemes import CONFIGS

    tables = tuple(f"{prefix}QUANTIZATION_METHODS" for prefix in ("", "BASE_", "CPU_"))
    return [
        has_members(quantization, tables),
        *(
            has_parameters(config.get_quant_method, ("self", "layer", "prefix"))
            for config in CONFIGS
        ),
        has_parameters(CompressedTensorsConfig._quantization_scheme_map_from_config, ("config",)),
        has_parameters(
            CompressedTensorsConfig.get_linear_scheme,
            ("self", "layer", "layer_name", "matched_target"),
        ),
    ]


def _loading() -> list[Verdict]:
    from sglang.srt.managers.scheduler_components import weight_updater as scheduler_updater
    from sglang.srt.managers.scheduler_components.weight_updater import (
        SchedulerWeightUpdaterManager,
    )
    from sglang.srt.managers.tokenizer_manager import TokenizerManager
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_executor.model_runner_components import weight_exporter, weight_updater
    from sglang.srt.model_executor.runner_utils import capture_mode
    from sglang.srt.model_loader import loader

    return [
        has_parameters(ModelRunner.load_model, ("self",)),
        has_parameters(TokenizerManager._tokenize_one_request, ("self", "obj")),
        has_parameters(
            loader.DefaultModelLoader.load_weights_only, ("model", "weights", "target_device")
        ),
        has_parameters(loader.initialize_dummy_weights, ("model",)),
        has_parameters(loader.ShardedStateLoader.save_model, ("model", "path")),
        has_parameters(loader.RemoteModelLoader.save_model, ("model", "model_path")),
        has_members(loader, ("PreshardedModelLoader", "RemoteInstanceModelLoader")),
        has_parameters(weight_updater._model_load_weights_direct, ("model", "named_tensors")),
        has_parameters(
            weight_updater.WeightUpdater.update_weights_from_disk,
            ("self", "model_path", "load_format"),
        ),
        has_parameters(SchedulerWeightUpdaterManager.end_weight_update, ("self", "recv_req")),
        has_parameters(scheduler_updater._export_static_state, ("model",)),
        has_parameters(weight_exporter.WeightExporter.get_weights_by_name, ("self", "name")),
        has_members(capture_mode, ("get_is_capture_mode",)),
    ]


def _plugins() -> list[Verdict]:
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import add_quantization_method_choices

    return [
        has_parameters(ModelConfig._verify_quantization, ("self",)),
        has_members(ModelConfig, ("_parse_quant_hf_config",)),
        has_parameters(HookRegistry.register, ("target", "hook", "hook_type")),
        has_members(HookType, ("AROUND",)),
        has_members(add_quantization_method_choices, ("__call__",)),
    ]
