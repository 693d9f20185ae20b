"""The arguments and options of `hk-backend quantize`; imports no torch."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class FormatName(str, Enum):
    """Values of `--format`: the names of `hk_backend.quantize.recipe.RECIPES`."""

    fp8 = "fp8"
    fp8_block = "fp8_block"
    mxfp8 = "mxfp8"
    mxfp6_e2m3 = "mxfp6_e2m3"
    mxfp6_e3m2 = "mxfp6_e3m2"
    mxfp4 = "mxfp4"


class MethodName(str, Enum):
    """Values of `--method`: see `hk_backend.quantize.recipe.Recipe.methods`."""

    rtn = "rtn"
    scales = "scales"
    rotated = "rotated"
    gptq = "gptq"


class Head(str, Enum):
    """Values of `--head`: see `hk_backend.quantize.head`."""

    kept = "16"
    fp8 = "fp8"
    mxfp8 = "mxfp8"
    mxfp6_e2m3 = "mxfp6_e2m3"
    mxfp6_e3m2 = "mxfp6_e3m2"
    mxfp4 = "mxfp4"


class Embedding(str, Enum):
    """Values of `--embedding`: the table as it is, or the packed head."""

    kept = "16"
    head = "head"


class Fold(str, Enum):
    """Values of `--fold`: see `hk_backend.quantize.folding`."""

    none = "none"
    heads = "heads"
    all = "all"


class Activations(str, Enum):
    """Values of `--activations`: quantised in the format's way, in another format, or not."""

    quantized = "quantized"
    none = "none"
    mxfp6_e2m3 = "mxfp6_e2m3"
    mxfp6_e3m2 = "mxfp6_e3m2"
    mxfp8 = "mxfp8"


ModelDir = Annotated[Path, typer.Argument(help="Folder of a Llama: config.json and safetensors.")]
OutDir = Annotated[Path, typer.Argument(help="Created if missing; resumed if interrupted.")]
FormatOption = Annotated[FormatName, typer.Option("--format", help="Format of the weights.")]
ActivationsOption = Annotated[
    Activations,
    typer.Option(
        help="Quantise activations while serving as the format does, or none: weights only. mxfp4 "
        "also has activations in wider formats."
    ),
]
MethodOption = Annotated[
    MethodName | None,
    typer.Option(
        "--method",
        help="rtn: round to nearest; scales: scales chosen for the format; rotated: inputs and "
        "weights rotated first; gptq: calibrated on the first part of --text. By default rotated "
        "for mxfp4 with its activations, scales for other MX formats, rtn for FP8.",
        show_default=False,
    ),
]
RotationOption = Annotated[
    int | None,
    typer.Option(
        "--rotation",
        help="Channels that are rotated together: 32, 64 or 128; 0: none. 64 by default where the "
        "method rotates.",
        show_default=False,
    ),
]
FoldOption = Annotated[
    Fold | None,
    typer.Option(
        "--fold",
        help="Rotations that other weights do, instead of HK while serving: heads: o_proj's, in "
        "v_proj; all: also those of q, k, v, gate and up, in what writes the residual stream, if "
        "the LM head has a table of its own. By default heads, where they are whole blocks.",
        show_default=False,
    ),
]
HeadOption = Annotated[
    Head,
    typer.Option(
        "--head",
        help="What HK serves the LM head in, which is not quantised in the file. With --text the "
        "report says what each costs.",
    ),
]
EmbeddingOption = Annotated[
    Embedding,
    typer.Option(
        "--embedding",
        help="head: an embedding that has the LM head's table shares what --head makes of it, and "
        "the engine releases the table.",
    ),
]
Text = Annotated[
    Path | None,
    typer.Option(
        help="Text to measure perplexity on, before and after; needs 4 bytes a parameter. gptq "
        "calibrates on its first part, which is not measured."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Layers to leave unquantised, such as 'model.layers.0.*'; repeatable."),
]
ShardSize = Annotated[
    float,
    typer.Option(min=0.001, max=1e6, help="GB per output file; also about the memory needed."),
]
