// The sizes of a matrix instruction: M x N results of K products each, in independent blocks.
#pragma once

#include <string_view>

namespace hk::emulator {

struct MatrixShape {
  unsigned m = 0, n = 0, k = 0, blocks = 1;
};

// Shape by mnemonic; v_mfma_f32_32x32x4_2b_bf16 has M 32, N 32, K 4 and 2 blocks.
MatrixShape matrix_shape(std::string_view mnemonic);

}  // namespace hk::emulator
