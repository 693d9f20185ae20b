"""vLLM's own benchmark client: `vllm bench serve`, as a module.

    python -m bench_serving.engines.vllm_client --model ... --base-url ...   (vLLM's own arguments)

The `vllm` command of vLLM's CPU wheel looks up a package name that it was not installed under.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def apart(message: str) -> Iterator[str]:
    """Split a streamed `message` that has both `choices` and `usage` into two messages.

    The client reads `usage` only in a message without `choices`, but llama.cpp's last message has
    both. Without `usage` the client tokenizes the answer's text, which may give another count.
    """
    field, _, text = message.partition(" ")
    if field == "data:" and '"usage"' in text:
        content: dict[str, Any] = json.loads(text)
        if content.get("choices") and content.get("usage"):
            usage = content.pop("usage")
            yield f"{field} {json.dumps(content)}"
            yield f"{field} {json.dumps({'usage': usage})}"
            return
    yield message


def main() -> None:
    from vllm.benchmarks import serve
    from vllm.benchmarks.lib.endpoint_request_func import StreamedResponseHandler
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    add_chunk = StreamedResponseHandler.add_chunk

    def add_apart(handler: Any, chunk: bytes) -> list[str]:
        return [part for message in add_chunk(handler, chunk) for part in apart(message)]

    StreamedResponseHandler.add_chunk = add_apart
    parser = FlexibleArgumentParser(prog="vllm bench serve")
    serve.add_cli_args(parser)
    serve.main(parser.parse_args())


if __name__ == "__main__":
    main()
