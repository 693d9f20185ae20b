"""The engines' own GPU kernels beside HK's: the code that a user runs who does not install HK.

They are compiled from the installed engine by Triton, executed in the emulator on the same inputs
as HK's kernels, held against the same reference, and timed by the same clock.

`vllm_platform`: makes vLLM choose what it chooses on an AMD GPU.
`dot_scaled`: a plain product of MX formats that no package multiplies.
`batches`, `layers`: the inputs, and the float64 results to compare with.
`vllm_attention`, `vllm_decode`, `vllm_linear`: vLLM's kernels, as `Stock...`.
`sglang_attention`, `sglang_decode`, `sglang_linear`: SGLang's.
`flydsl_kernels`, `fbtriton_kernels`, `aiter_kernels`, `aiter_products`: those of packages.
`flydsl_gpu`: the functions of HIP's runtime that FlyDSL's launchers call.
`ours`, `ours_decode`: HK's results and modelled times for the same inputs.
`comparison`: rows of `hk-backend bench gpu --against stock`.

Only this room of hk_backend runs an engine's code, and nothing but its command imports this room.
Besides it the Triton driver imports one module of vLLM's, while it lends it a backend's name.
"""
