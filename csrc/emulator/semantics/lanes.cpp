#include "semantics/lanes.hpp"

#include <cstring>

#include "semantics/dpp.hpp"

namespace hk::emulator::HK_ISA {
namespace {

constexpr uint32_t kSign = 0x80000000u;

// ---- DPP ----

// Whether a DPP lane reads its source. If that is out of bounds or inactive, it reads 0 and writes
// only with bound_ctrl.
bool dpp_reads(const Wave& w, int source) { return source >= 0 && (w.exec() >> source & 1); }

void permute(const Wave& w, const Instruction& in, uint32_t* row) {
  uint32_t from[kLanes];
  std::memcpy(from, row, sizeof from);
  const int8_t* const sources = dpp_sources(in.dpp_ctrl);
  for (int lane = 0; lane < kLanes; ++lane)
    row[lane] = dpp_reads(w, sources[lane]) ? from[sources[lane]] : 0;
}

// ---- SDWA ----

uint32_t sdwa_bits(int select) { return select < 4 ? 8 : select < 6 ? 16 : 32; }
uint32_t sdwa_shift(int select) { return select < 4 ? 8 * select : select == 5 ? 16 : 0; }

void select_part(uint32_t* row, int select, bool sign_extend) {
  const uint32_t up = 32 - sdwa_bits(select) - sdwa_shift(select), down = 32 - sdwa_bits(select);
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t top = row[lane] << up;
    row[lane] = sign_extend ? uint32_t(int32_t(top) >> down) : top >> down;
  }
}

void write_sdwa(const Instruction& in, uint32_t* destination, const Row& result, uint64_t lanes) {
  const uint32_t bits = sdwa_bits(in.dst_sel), shift = sdwa_shift(in.dst_sel);
  const uint32_t mask = (bits == 32 ? ~0u : (1u << bits) - 1) << shift;
  Row merged;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t value = result.lane[lane] << shift & mask;
    const uint32_t extended =
        uint32_t(int32_t(value << (32 - bits - shift)) >> (32 - bits - shift));
    merged.lane[lane] = in.dst_unused == 2   ? value | (destination[lane] & ~mask)
                        : in.dst_unused == 1 ? extended
                                             : value;
  }
  blend(destination, merged.lane, lanes);
}

// ---- sources ----

void read_operand(Wave& w, const Operand& o, int dword, uint32_t* row) {
  uint32_t value = 0;
  switch (o.kind) {
    case Kind::vgpr:
    case Kind::agpr: std::memcpy(row, register_row(w, o, dword), sizeof(Row)); return;
    case Kind::sgpr: value = w.sgpr[o.index + dword]; break;
    case Kind::constant: value = uint32_t(o.value >> (32 * dword)); break;
    case Kind::scc: value = dword ? 0 : w.scc; break;
    case Kind::vccz: value = dword ? 0 : w.vcc() == 0; break;
    case Kind::execz: value = dword ? 0 : w.exec() == 0; break;
    case Kind::none: throw Unsupported("an instruction without one of its sources");
  }
  for (int lane = 0; lane < kLanes; ++lane) row[lane] = value;
}

void change_sign(uint32_t* row, bool absolute, bool negate, uint32_t sign) {
  const uint32_t keep = absolute ? ~sign : ~0u, flip = negate ? sign : 0;
  for (int lane = 0; lane < kLanes; ++lane) row[lane] = (row[lane] & keep) ^ flip;
}

// Replaces denormals by zeros of their sign.
void flush(uint32_t* row, uint32_t exponent, uint32_t sign) {
  for (int lane = 0; lane < kLanes; ++lane)
    row[lane] = row[lane] & exponent ? row[lane] : row[lane] & sign;
}

void flush_f64(Row* rows) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool small = !(rows[1].lane[lane] & 0x7ff00000u);
    rows[0].lane[lane] = small ? 0 : rows[0].lane[lane];
    rows[1].lane[lane] = small ? rows[1].lane[lane] & kSign : rows[1].lane[lane];
  }
}

}  // namespace

const uint32_t* build_row(Wave& w, const Instruction& in, int n, int dword, As as, Row& scratch) {
  const Operand& o = in.src[n];
  uint32_t* const row = scratch.lane;
  read_operand(w, o, dword, row);
  if (in.dpp && n == 0) permute(w, in, row);
  const bool half = as == As::b16 || as == As::f16;
  if (in.sdwa && n < 2) {
    select_part(row, n ? in.src1_sel : in.src0_sel, n ? in.src1_sext : in.src0_sext);
  } else if (half && in.op_sel >> n & 1) {
    select_part(row, 5, false);
  }
  if (half) select_part(row, 4, false);
  const bool wide = as == As::f64 || as == As::b64;
  if ((o.absolute || o.negate) && (!wide || dword == 1))
    change_sign(row, o.absolute, o.negate, half ? 0x8000u : kSign);
  if (flushes_input(w.mode, as)) {
    if (as == As::f32) flush(row, 0x7f800000u, kSign);
    if (as == As::f16) flush(row, 0x7c00u, 0x8000u);
    if (as == As::f64) {  // the upper dword decides for both
      Row upper;
      read_operand(w, o, 1, upper.lane);
      for (int lane = 0; lane < kLanes; ++lane)
        if (!(upper.lane[lane] & 0x7ff00000u)) row[lane] &= dword ? kSign : 0;
    }
  }
  return row;
}

const uint32_t* packed_row(Wave& w, const Instruction& in, int n, bool high, As as, Row& scratch) {
  uint32_t* const row = scratch.lane;
  const Operand& o = in.src[n];
  const bool upper = (high ? in.op_sel_hi : in.op_sel) >> n & 1;
  const bool negate = (high ? in.neg_hi : in.neg_lo) >> n & 1;
  if (as == As::f32 || as == As::b32) {
    read_operand(w, o, upper, row);
    change_sign(row, false, negate, kSign);
    if (flushes_input(w.mode, as)) flush(row, 0x7f800000u, kSign);
    return row;
  }
  read_operand(w, o, 0, row);
  if (in.dpp && n == 0) permute(w, in, row);
  if (in.sdwa && n < 2)
    select_part(row, n ? in.src1_sel : in.src0_sel, n ? in.src1_sext : in.src0_sext);
  select_part(row, upper ? 5 : 4, false);
  // VOP2's modifiers act on both halves. SDWA has none on packed values: LLVM has no text for them,
  // and AMD's simulator ignores them.
  change_sign(row, o.absolute && !in.sdwa, negate != (o.negate && !in.sdwa), 0x8000u);
  if (flushes_input(w.mode, as)) flush(row, 0x7c00u, 0x8000u);
  return row;
}

uint64_t dpp_lanes(const Wave& w, const Instruction& in) {
  uint64_t row = 0, lanes = 0;
  for (int bank = 0; bank < 4; ++bank) row |= (in.bank_mask >> bank & 1 ? 15ull : 0) << 4 * bank;
  for (int i = 0; i < 4; ++i) lanes |= (in.row_mask >> i & 1 ? row : 0) << 16 * i;
  if (in.bound_ctrl) return lanes & w.exec();
  const int8_t* const sources = dpp_sources(in.dpp_ctrl);
  for (int lane = 0; lane < kLanes; ++lane)
    if (!dpp_reads(w, sources[lane])) lanes &= ~(1ull << lane);
  return lanes & w.exec();
}

void blend(uint32_t* destination, const uint32_t* result, uint64_t lanes) {
  if (lanes == ~0ull) {
    std::memcpy(destination, result, sizeof(Row));
    return;
  }
  for (int half = 0; half < 2; ++half) {
    const uint32_t bits = uint32_t(lanes >> (32 * half));
    uint32_t* to = destination + 32 * half;
    const uint32_t* from = result + 32 * half;
    for (int lane = 0; lane < 32; ++lane) {
      const uint32_t mask = 0u - (bits >> lane & 1);
      to[lane] = (to[lane] & ~mask) | (from[lane] & mask);
    }
  }
}

void write_row(Wave& w, const Instruction& in, int dword, const Row& result) {
  uint32_t* const destination = register_row(w, in.dst[0], dword);
  if (in.sdwa)
    write_sdwa(in, destination, result, written_lanes(w, in));
  else
    blend(destination, result.lane, written_lanes(w, in));
}

void write_half(Wave& w, const Instruction& in, Row& result) {
  if (!in.sdwa && in.op_sel & 8) {
    const uint32_t* old = register_row(w, in.dst[0]);
    for (int lane = 0; lane < kLanes; ++lane)
      result.lane[lane] = result.lane[lane] << 16 | (old[lane] & 0xffffu);
  }
  write_row(w, in, 0, result);
}

void write_mask(Wave& w, const Instruction& in, const Operand& destination, uint64_t mask) {
  w.set_pair(destination.index, mask & written_lanes(w, in));
}

// Whether output modifiers apply. They are ignored in IEEE mode or with denormal outputs, and turn
// -0 to +0 (CDNA3 ISA guide, "Output Modifiers").
static bool output_scaled(const Wave& w, const Instruction& in, As as) {
  return in.omod && !ieee(w.mode) && flushes_output(w.mode, as);
}

template <class T>
static T scaled_output(T value, int omod) {
  return value * (omod == 1 ? T(2) : omod == 2 ? T(4) : T(0.5)) + T(0);
}

// Clamps to [0, 1]; NaN becomes 0 if MODE has DX10_CLAMP.
template <class T>
static T clamped_output(T value, bool dx10) {
  const T low = value > 0 ? value : T(0), both = low < 1 ? low : T(1);
  return value != value ? (dx10 ? T(0) : value) : both;
}

void modify_f32(const Wave& w, const Instruction& in, Row& result) {
  if (output_scaled(w, in, As::f32))
    for (uint32_t& lane : result.lane) lane = as_bits(scaled_output(as_float(lane), in.omod));
  if (flushes_output(w.mode, As::f32)) flush(result.lane, 0x7f800000u, kSign);
  if (in.clamp) {
    const bool dx10 = w.mode >> 8 & 1;
    for (uint32_t& lane : result.lane) lane = as_bits(clamped_output(as_float(lane), dx10));
  }
}

void modify_f64(const Wave& w, const Instruction& in, Row* rows) {
  const bool scaled = output_scaled(w, in, As::f64), dx10 = w.mode >> 8 & 1;
  if (flushes_output(w.mode, As::f64)) flush_f64(rows);
  if (!scaled && !in.clamp) return;
  for (int lane = 0; lane < kLanes; ++lane) {
    double value = std::bit_cast<double>(rows[0].lane[lane] | uint64_t(rows[1].lane[lane]) << 32);
    if (scaled) value = scaled_output(value, in.omod);
    if (in.clamp) value = clamped_output(value, dx10);
    store_lane(rows, lane, value);
  }
}

void round_f16(const Wave& w, const Instruction& in, Row& result, Rounding rounding) {
  if (output_scaled(w, in, As::f16))
    for (uint32_t& lane : result.lane) lane = as_bits(scaled_output(as_float(lane), in.omod));
  if (in.clamp) {
    const bool dx10 = w.mode >> 8 & 1;
    for (uint32_t& lane : result.lane) lane = as_bits(clamped_output(as_float(lane), dx10));
  }
  const bool saturate = fp16_overflow(w.mode);
  if (rounding == Rounding::nearest_even && !saturate) {
    for (uint32_t& lane : result.lane) lane = narrow<kF16>(as_float(lane));
  } else {
    for (uint32_t& lane : result.lane) lane = narrow<kF16>(as_float(lane), rounding, saturate);
  }
  if (flushes_output(w.mode, As::f16)) flush(result.lane, 0x7c00u, 0x8000u);
}

void settle_nans(Row& result, const uint32_t* const* sources, int count) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((result.lane[lane] & ~kSign) <= 0x7f800000u) continue;
    uint32_t nan = 0x7fc00000u;
    for (int n = count - 1; n >= 0; --n)
      if ((sources[n][lane] & ~kSign) > 0x7f800000u) nan = sources[n][lane] | 0x400000u;
    result.lane[lane] = nan;
  }
}

void HostRounding::enter(Rounding rounding) {
  constexpr int kModes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  std::fesetround(kModes[int(rounding)]);
  asm volatile("" ::: "memory");
}

void HostRounding::leave() {
  asm volatile("" ::: "memory");
  std::fesetround(FE_TONEAREST);
}

}  // namespace hk::emulator::HK_ISA
