"""vLLM's own benchmark client: `vllm bench serve`, as a module.

    python -m bench_serving.engines.vllm_client --model ... --base-url ...   (vLLM's own arguments)

The `vllm` command of vLLM's CPU wheel looks up a package name that it was not installed under.
"""

from __future__ import annotations

if __name__ == "__main__":
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm bench serve")
    add_cli_args(parser)
    main(parser.parse_args())
