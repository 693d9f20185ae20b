# An engine's ROCm image with HK in it: docker build -t vllm-hk .
# For SGLang: docker build --build-arg BASE=lmsysorg/sglang:TAG -t sglang-hk .
# The first stage wants Python's headers and venv, make and g++ of the image; nothing of ROCm.
ARG BASE=vllm/vllm-openai-rocm:v0.32.0

FROM ${BASE} AS wheel
WORKDIR /hk
COPY . .
RUN make wheel

FROM ${BASE}
RUN --mount=type=bind,from=wheel,source=/hk/dist,target=/hk/dist \
    python3 -m pip install --no-cache-dir /hk/dist/*.whl
ENV HK_BACKEND=1
