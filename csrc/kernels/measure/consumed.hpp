// A matrix result that something else than the next matrix instruction's sum waits for.
#pragma once

#include "chain.hpp"

namespace hk::measure {

struct MatrixResult {
  using Matrix = Mma<bf16>;
  using Operand = Vec<bf16, Matrix::kOperand>;
  static constexpr int kRepeats = 16;
  Operand a, b;
  Block sum;

  HK_DEVICE MatrixResult(const MeasureArgs& args, const Place& place) {
    const Operands from(args, place);
    a = bit_cast<Operand>(Operands::first<Words<sizeof(Operand) / 4>>(from.a));
    b = bit_cast<Operand>(Operands::first<Words<sizeof(Operand) / 4>>(from.b));
    sum = Block(f32(a[0]));
  }
  HK_DEVICE void multiply() { sum = Matrix::multiply(a, b, sum); }
  HK_DEVICE u32 result() const { return bit_cast<u32>(sum[0]); }
};

struct ConsumedByVector : MatrixResult {
  f32 seen = 0;

  using MatrixResult::MatrixResult;
  HK_DEVICE void step() {
    static_for<0, kRepeats>([&](auto) {
      multiply();
      seen += sum[0];
      fence_schedule();
    });
  }
  HK_DEVICE u32 result() const { return bit_cast<u32>(seen); }
};

struct ConsumedAsOperand : MatrixResult {
  using MatrixResult::MatrixResult;
  HK_DEVICE void step() {
    static_for<0, kRepeats>([&](auto) {
      multiply();
      Vec<f32, sizeof(Operand) / 4> next;
      static_for<0, sizeof(Operand) / 4>([&](auto i) { next[i.value] = sum[i.value]; });
      a = bit_cast<Operand>(next);
      fence_schedule();
    });
  }
};

}  // namespace hk::measure
