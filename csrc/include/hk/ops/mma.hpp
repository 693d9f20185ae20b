// Matrix products of fragments.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

// dst = a * b + c, one instruction.
template <class T>
HK_DEVICE void mma(Vec<f32, Mma::kResult>& dst, const Fragment<T>& a, const Fragment<T>& b,
                   Vec<f32, Mma::kResult> c) {
  dst = arch::mma(a.elements(), b.elements(), c);
}

}  // namespace hk
