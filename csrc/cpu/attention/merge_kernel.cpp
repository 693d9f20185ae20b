// Joins two partial attentions of the same queries over disjoint keys:
//   out = (a * 2^(A - T) + b * 2^(B - T)) / (2^(A - T) + 2^(B - T)),  T = max(A, B)
// where A and B are the log-sum-exps. A side that saw no key (minus infinity) is not read.

#include "attention/attention_args.hpp"
#include "attention/softmax.hpp"

namespace hk::cpu::HK_ISA {
namespace {

template <class T>
void merge_row(T, const MergeArgs& args, int64_t token, int64_t head) {
  using element = typename T::type;
  const float a = args.lse_a[head * args.lse_a_head + token * args.lse_a_token] * kLog2E;
  const float b = args.lse_b[head * args.lse_b_head + token * args.lse_b_token] * kLog2E;
  const float top = a > b ? a : b;
  const float weight_a = a == kNegInf ? 0.0f : exp2(a - top);
  const float weight_b = b == kNegInf ? 0.0f : exp2(b - top);
  const float sum = weight_a + weight_b;
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  const auto* from_a =
      static_cast<const element*>(args.output_a) + token * args.a_token + head * args.a_head;
  const auto* from_b =
      static_cast<const element*>(args.output_b) + token * args.b_token + head * args.b_head;
  auto* to = static_cast<element*>(args.out) + token * args.out_token + head * args.out_head;
  for (int64_t c = 0; c < args.head_size; ++c) {
    const float x = weight_a == 0.0f ? 0.0f : weight_a * widen(T{}, from_a[c * args.a_channel]);
    const float y = weight_b == 0.0f ? 0.0f : weight_b * widen(T{}, from_b[c * args.b_channel]);
    to[c * args.out_channel] = narrow(T{}, (x + y) * factor);
  }
  float* lse = args.lse + head * args.lse_head + token * args.lse_token;
  *lse = sum == 0.0f ? kNegInf : (top + __builtin_log2f(sum)) * kLn2;
}

}  // namespace

void merge(const MergeArgs& args, int64_t token_begin, int64_t token_end) {
  with_format(args.dtype, [&](auto format) {
    for (int64_t token = token_begin; token < token_end; ++token)
      for (int64_t head = 0; head < args.num_heads; ++head) merge_row(format, args, token, head);
  });
}

}  // namespace hk::cpu::HK_ISA
