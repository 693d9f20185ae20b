// d=256
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(bf16_d256_packed, bf16, 256, 128, PackedRows, All, 50);
