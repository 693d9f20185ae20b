"""The candidate llama.cpp: its server's numbers for the converted SmolLM2, its options, and refused
plans."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import ENOSPC
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from bench_serving.candidates import Candidate
from bench_serving.engines import LlamaCpp, Sglang, Vllm
from bench_serving.llamacpp import convert
from bench_serving.llamacpp.blocks import encode
from bench_serving.llamacpp.convert import write_gguf
from bench_serving.llamacpp.formats import FORMATS
from bench_serving.llamacpp.server import settings
from bench_serving.plan import ServingPlan
from bench_serving.serve import measure
from bench_serving.server import Server, ServerError, differences
from bench_serving.start import start
from hk_backend import machine
from tests.bench_serving import conftest
from tests.models import real_prompts, real_text, smollm2

TOKENS = 40
CHOICES = 20
"""Likeliest tokens at each position: their log-probabilities are compared."""


@contextmanager
def served(file: Path, folder: Path) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
    """A function that asks llama.cpp's server over `file`: `ask("/tokenize", {...})`."""
    core = "0"
    arguments = ("--slots", "2", "--context", "256", "--cores", core)
    log = folder / "log.txt"
    with Server(LlamaCpp(Vllm()), file, "llama.cpp", "auto", log, arguments) as server:
        assert server.threads() == core

        def ask(path: str, request: dict[str, Any]) -> Any:
            reply = httpx.post(f"{server.url}{path}", json=request, timeout=300)
            return reply.raise_for_status().json()

        yield ask
        server.check_alive()


class Multiplied:
    """SmolLM2 in float32, with the weights that a file of `format` holds."""

    def __init__(self, format: str) -> None:
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(smollm2(), dtype=torch.float32)
        for module in self._model.modules():
            if isinstance(module, torch.nn.Linear):
                columns, kinds = module.weight.shape[1], FORMATS[format]
                is_head = module is self._model.lm_head
                kind = kinds.head_of(columns) if is_head else kinds.weight
                module.weight.data = stored(module.weight.data, GGMLQuantizationType[kind])
        self._inputs = GGMLQuantizationType["BF16" if format == "bf16" else "Q8_0"]

    def scores(self, tokens: list[int], rounded: bool) -> torch.Tensor:
        """Log-probabilities after each of `tokens`, `[tokens, vocabulary]`. `rounded`: the inputs
        of matrix products are rounded as llama.cpp rounds them."""

        def round_inputs(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
            return stored(inputs[0][0], self._inputs)[None]

        linear = [each for each in self._model.modules() if isinstance(each, torch.nn.Linear)]
        hooks = [each.register_forward_pre_hook(round_inputs) for each in linear if rounded]
        with torch.inference_mode():
            logits = self._model(torch.tensor([tokens])).logits[0]
        for hook in hooks:
            hook.remove()
        return logits.log_softmax(-1)


def stored(matrix: torch.Tensor, kind: GGMLQuantizationType) -> torch.Tensor:
    """The values of `matrix` after it was stored in the format `kind`."""
    return torch.from_numpy(quants.dequantize(encode(matrix, kind), kind))


def likeliest(ask: Callable[[str, dict[str, Any]], Any], tokens: list[int]) -> dict[int, float]:
    """llama.cpp's `CHOICES` likeliest next tokens, the first first, and their log-probabilities."""
    request = {"prompt": tokens, "n_predict": 1, "n_probs": CHOICES, "temperature": 0}
    (found,) = ask("/completion", request)["completion_probabilities"]
    return {each["id"]: each["logprob"] for each in found["top_logprobs"]}


@pytest.mark.parametrize(
    "format", ["bf16", *(pytest.param(name, marks=pytest.mark.slow) for name in ("q8_0", "q4_0"))]
)
def test_its_numbers_are_those_of_the_file(tmp_path: Path, format: str) -> None:
    """The server's numbers agree with transformers in float32 on the weights that the file holds.

    llama.cpp rounds the inputs of matrix products to bfloat16, or to 8 bits in blocks of 32. The
    same rounding in transformers' layers shows how far this moves log-probabilities. The two are
    different draws of the same roundings. Their root mean squares over `TOKENS` positions differ by
    one standard deviation of 1 / sqrt(TOKENS), a sixth; three of them are allowed. The likeliest
    token, and so a greedy answer, is the same wherever float32 has it ahead of the next by more
    than both can move.
    """
    write_gguf(smollm2(), tmp_path / "a.gguf", format)
    (tokens,) = real_prompts(smollm2(), [TOKENS])
    model = Multiplied(format)
    exact = model.scores(tokens, rounded=False)
    ids, found = llama_cpp_scores(tmp_path / "a.gguf", tokens)
    error = found - exact.gather(1, ids)
    allowed = (model.scores(tokens, rounded=True) - exact).gather(1, ids)
    assert 0 < rms(error) < 1.5 * rms(allowed)
    first, second = exact.topk(2).values.unbind(1)
    clear = first - second > 2 * error.abs().amax(1)
    assert clear.sum() > TOKENS / 2
    assert torch.equal(ids[clear, 0], exact.argmax(1)[clear])


def llama_cpp_scores(file: Path, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """llama.cpp's `CHOICES` likeliest tokens after each of `tokens`, the likeliest first, and their
    log-probabilities, both `[tokens, CHOICES]`."""
    with served(file, file.parent) as ask:
        rows = [likeliest(ask, tokens[: place + 1]) for place in range(len(tokens))]
    return torch.tensor([list(row) for row in rows]), torch.tensor(
        [[*row.values()] for row in rows]
    )


@pytest.mark.slow
def test_vllm_s_client_measures_it(tmp_path: Path) -> None:
    """Every request is answered, one at a time and several at once. No token is lost, and only
    tokens that were made are counted."""
    names = ("llama.cpp", "llama.cpp:auto:q4_0")
    candidates = [Candidate.parse(name) for name in names]
    plan = ServingPlan(Vllm(), smollm2(), candidates, "bfloat16", [48], 4, [1, 4], 12, 1)
    points, _ = measure(plan, tmp_path, lambda line: None)
    assert [(point.backend, point.concurrency, point.error) for point in points] == [
        (name, concurrency, "") for concurrency in (1, 4) for name in names
    ]


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_it_makes_the_same_tokens_of_a_text(tmp_path: Path) -> None:
    """llama.cpp's tokenizer agrees on English, on text that needs every rule, and on a benchmark
    client's random tokens."""
    from transformers import AutoTokenizer

    checkpoint = smollm2()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    write_gguf(checkpoint, tmp_path / "a.gguf", "q8_0")
    ids = random.Random(0).choices(range(17, 49152), k=500)
    texts = [
        tokenizer.decode(real_text(checkpoint)),
        "It's 12,345.67 -- naïve  Straße\n\n\t日本 🙂 I'LL don't\r\n  x = y[0];",
        tokenizer.decode(ids),
        "<|im_start|>user\nHello<|im_end|>\n",
    ]
    with served(tmp_path / "a.gguf", tmp_path) as ask:
        for text in texts:
            request = {"content": text, "add_special": True, "parse_special": True}
            assert ask("/tokenize", request)["tokens"] == tokenizer(text)["input_ids"]


plan = partial(conftest.plan, dtype="bfloat16")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """The servers that a test starts, in order. Nothing really runs, and the engine's log names two
    cores."""
    servers: list[Server] = []

    def enter(server: Server) -> Server:
        server.log.parent.mkdir(parents=True, exist_ok=True)
        cores = dict(pairwise(server.arguments)).get("--cores", "")
        own = f"threads on cores [{cores}]\n"
        engine = "local_rank=0, core ids=[0, 1]\n"
        server.log.write_text(own if server.backend == "llama.cpp" else engine)
        servers.append(server)
        return server

    monkeypatch.setattr(Server, "__enter__", enter)
    monkeypatch.setattr(convert, "write_gguf", lambda model, file, form: file.write_text(form))
    return servers


def test_it_follows_the_engine_with_its_threads_and_room_for_the_load(
    tmp_path: Path, started: list[Server]
) -> None:
    names = ("llama.cpp", "stock", "llama.cpp:auto:q4_0", "hk:bfloat16:hk_mxfp4")
    load = {"input_lens": [64, 500], "output_len": 12, "concurrencies": [1, 8]}
    asked = plan(tmp_path, *names, **load, server_arguments=["--enforce-eager"])
    with ExitStack() as stack:
        servers = start(stack, asked, tmp_path / "out", lambda line: None)
        assert list(servers) == ["stock", "hk:bfloat16:hk_mxfp4", "llama.cpp", names[2]]
        assert started == list(servers.values())
        plain, quantized = servers["llama.cpp"], servers["llama.cpp:auto:q4_0"]
        assert [each.model.read_text() for each in (plain, quantized)] == ["bf16", "q4_0"]
        for each in (plain, quantized):
            told = {"--slots": "8", "--context": "512", "--cores": "0, 1"}
            assert dict(zip(each.arguments[::2], each.arguments[1::2], strict=True)) == told
        assert differences(servers.values(), asked.may_differ) == []
    assert not plain.model.exists()
    assert not list((tmp_path / "out").glob("gguf*"))


def test_a_full_disk_is_said_in_words(
    tmp_path: Path, started: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: Path, file: Path, form: str) -> None:
        raise OSError(ENOSPC, "No space left")

    monkeypatch.setattr(convert, "write_gguf", full)
    with ExitStack() as stack, pytest.raises(ServerError, match=r"write .*\.gguf: No space left"):
        start(stack, plan(tmp_path, "stock", "llama.cpp"), tmp_path / "out", lambda line: None)
    assert not started


def test_what_its_server_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets a slot for each request and room for the longest one, in steps of 256. It
    gets a thread for each core, or as many as there are."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 7)

    def told(context: int, cores: str) -> Any:
        given = {"model": "a.gguf", "alias": "a", "host": "127.0.0.1", "port": 1, "slots": 3}
        return settings(Namespace(**given, context=context, cores=cores))

    free, bound = told(300, ""), told(256, "0, 2; 5")
    assert (free.n_parallel, free.n_ctx, bound.n_ctx) == (3, 3 * 512, 3 * 256)
    assert not free.fit_params  # otherwise memory would decide
    for threads in (free.cpuparams, free.cpuparams_batch):
        assert (threads.n_threads, threads.mask_valid) == (7, False)
    for threads in (bound.cpuparams, bound.cpuparams_batch):
        assert (threads.n_threads, threads.mask_valid, threads.strict_cpu) == (3, True, True)
        assert {core for core, taken in enumerate(threads.cpumask) if taken} == {0, 2, 5}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llama.cpp:auto:hk_fp8", "QUANTIZATION of llama.cpp is q8_0 or q4_0"),
        ("llama.cpp:float32", r"in float32: llama\.cpp serves auto or bfloat16"),
        ("llama.cpp:auto:q8_0:more", "is not BACKEND"),
        ("llamacpp", r"with BACKEND of stock, hk, llama\.cpp"),
    ],
)
def test_a_name_that_it_cannot_serve_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        Candidate.parse(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dtype": "float32"}, r"'llama.cpp' in float32: .*named as llama\.cpp:bfloat16"),
        ({"engine": Sglang()}, "SGLang's client speaks an API"),
    ],
)
def test_a_plan_that_it_cannot_serve_is_refused_before_anything_starts(
    tmp_path: Path, started: list[Server], changes: dict[str, Any], why: str
) -> None:
    with ExitStack() as stack, pytest.raises(ServerError, match=why):
        start(stack, plan(tmp_path, "stock", "llama.cpp", **changes), tmp_path, print)
    assert started == []
