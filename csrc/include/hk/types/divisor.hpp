// Division by a number that the host knows.
#pragma once

#include "../arch/arch.hpp"

namespace hk {

// Divides numbers whose product with the divisor is below 2^31.
struct Divisor {
  u32 by;
  u32 reciprocal;  // 2^31 / by, rounded up

  struct Divided {
    u32 quotient, rest;
  };
  HK_DEVICE Divided divide(u32 number) const {
    const u32 quotient = u32(u64(2 * number) * reciprocal >> 32);
    return {quotient, number - quotient * by};
  }
};

}  // namespace hk
