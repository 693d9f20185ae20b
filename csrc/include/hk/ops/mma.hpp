// Matrix products of fragments.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

// dst = a * b + c, one instruction.
template <class A, class B, class Shape>
HK_DEVICE void mma(ResultBlock<Shape>& dst, const Fragment<A, Shape>& a,
                   const Fragment<B, Shape>& b, ResultBlock<Shape> c) {
  dst = Mma<A, B, Shape>::multiply(a.elements(), b.elements(), c);
}

}  // namespace hk
