// Executes AVX512-BF16, VNNI and AMX (palette 1) with AVX-512F alone. Sources: Intel SDM volume 1,
// chapter 18, and volume 2, the pages of the instructions. An instruction that it does not know, or
// that would fault, halts the emulated processor.
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "decode.hpp"

namespace hk::test {

using enum Operation;

union alignas(64) Vector {
  uint32_t dwords[16];
  uint16_t words[32];
};

// The registers as the handler has put them on the stack; the last five are the processor's own.
struct Frame {
  Vector zmm[32];
  uint64_t k[8];
  uint32_t mxcsr;
  uint8_t gap[20];
  uint64_t general[16];  // rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15
  uint64_t rip, cs, rflags, rsp, ss;
};

constexpr int TILES = 8, MOST_ROWS = 16, MOST_BYTES = 64;

// All zero: no tiles are configured.
struct TileState {
  bool configured;
  uint8_t rows[TILES];
  uint16_t row_bytes[TILES];
  Vector tile[TILES][MOST_ROWS];
};

namespace {

uint64_t address_of(const Instruction& i, const Frame& f) {
  uint64_t address = static_cast<int64_t>(i.displacement);
  if (i.base == RIP) {
    address += f.rip + i.length;
  } else if (i.base != NONE) {
    address += f.general[i.base];
  }
  const bool stride = i.operation == tileloadd || i.operation == tilestored;
  if (i.index != NONE && !stride) address += f.general[i.index] << i.shift;
  return address;
}

// --- vectors -------------------------------------------------------------------------------------

__m512 odd_elements(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF0000)));
}

__m512 even_elements(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }

__m512 dot_bfloat16(__m512 sum, __m512i a, __m512i b) {
  sum = _mm512_fmadd_ps(odd_elements(a), odd_elements(b), sum);
  return _mm512_fmadd_ps(even_elements(a), even_elements(b), sum);
}

// Element number `index` of so many bits, with its sign or without.
__m512i integers(__m512i dwords, int bits, int index, bool sign) {
  const __m512i top = _mm512_sllv_epi32(dwords, _mm512_set1_epi32(32 - bits * (index + 1)));
  const __m512i down = _mm512_set1_epi32(32 - bits);
  return sign ? _mm512_srav_epi32(top, down) : _mm512_srlv_epi32(top, down);
}

// vpdpbusd (8 bits) and vpdpwssd (16 bits); sums wrap.
__m512i dot_integers(__m512i sum, __m512i a, __m512i b, int bits) {
  for (int index = 0; index < 32 / bits; ++index) {
    const __m512i product =
        _mm512_mullo_epi32(integers(a, bits, index, bits == 16), integers(b, bits, index, true));
    sum = _mm512_add_epi32(sum, product);
  }
  return sum;
}

uint16_t to_bfloat16(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude < 0x00800000) return bits >> 16 & 0x8000;
  if (magnitude > 0x7F800000) return bits >> 16 | 0x40;
  if (magnitude == 0x7F800000) return bits >> 16;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

bool execute_vector(const Instruction& i, Frame& f) {
  Vector& destination = f.zmm[i.destination];
  const __m512i sum = _mm512_load_si512(&destination), a = _mm512_load_si512(&f.zmm[i.first]);
  const auto* memory = reinterpret_cast<const uint32_t*>(address_of(i, f));
  const __m512i b = !i.memory     ? _mm512_load_si512(&f.zmm[i.second])
                    : i.broadcast ? _mm512_set1_epi32(*memory)
                                  : _mm512_loadu_si512(memory);
  if (i.operation == vcvtneps2bf16 || i.operation == vcvtne2ps2bf16) {
    Vector lower, upper;
    _mm512_store_si512(&lower, b);
    _mm512_store_si512(&upper, a);
    const bool both = i.operation == vcvtne2ps2bf16;
    for (int e = 0; e < 16; ++e) {
      destination.words[e] = to_bfloat16(lower.dwords[e]);
      destination.words[16 + e] = both ? to_bfloat16(upper.dwords[e]) : 0;
    }
  } else if (i.operation == vdpbf16ps) {
    _mm512_store_ps(&destination, dot_bfloat16(_mm512_castsi512_ps(sum), a, b));
  } else {
    const int bits = i.operation == vpdpbusd ? 8 : 16;
    _mm512_store_si512(&destination, dot_integers(sum, a, b, bits));
  }
  return true;
}

// --- tiles ---------------------------------------------------------------------------------------

// The 64 bytes that ldtilecfg reads. A restart row other than 0 is refused: only an operating system
// writes one.
struct Configuration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[TILES];
  uint8_t reserved_row_bytes[16];
  uint8_t rows[TILES];
  uint8_t reserved_rows[8];
};
static_assert(sizeof(Configuration) == 64);

bool zero(const uint8_t* bytes, int count) {
  for (int i = 0; i < count; ++i) {
    if (bytes[i]) return false;
  }
  return true;
}

bool configure(const Configuration& wanted, TileState& tiles) {
  if (wanted.palette > 1) return false;
  TileState fresh = {};
  if (wanted.palette == 1) {
    if (wanted.start_row || !zero(wanted.reserved, 14) || !zero(wanted.reserved_row_bytes, 16) ||
        !zero(wanted.reserved_rows, 8)) {
      return false;
    }
    fresh.configured = true;
    for (int t = 0; t < TILES; ++t) {
      fresh.rows[t] = wanted.rows[t];
      fresh.row_bytes[t] = wanted.row_bytes[t];
      if (wanted.rows[t] > MOST_ROWS || wanted.row_bytes[t] > MOST_BYTES) return false;
      if ((wanted.rows[t] == 0) != (wanted.row_bytes[t] == 0)) return false;
    }
  }
  tiles = fresh;
  return true;
}

bool usable(const TileState& tiles, int tile) { return tiles.configured && tiles.rows[tile] > 0; }

bool in_dwords(const TileState& tiles, int tile) {
  return usable(tiles, tile) && tiles.row_bytes[tile] % 4 == 0;
}

__mmask16 columns_of(const TileState& tiles, int tile) {
  return static_cast<__mmask16>((1u << tiles.row_bytes[tile] / 4) - 1);
}

// M x K of `second` times K x N of `first`, in groups of four bytes along K.
bool shapes_agree(const Instruction& i, const TileState& t) {
  const int sum = i.destination, left = i.second, right = i.first;
  return in_dwords(t, sum) && in_dwords(t, left) && in_dwords(t, right) &&
         t.row_bytes[sum] == t.row_bytes[right] && t.rows[sum] == t.rows[left] &&
         t.row_bytes[left] == 4 * t.rows[right];
}

// The even and the odd products are summed apart, then added.
bool multiply(const Instruction& i, TileState& t) {
  if (!shapes_agree(i, t)) return false;
  const int sum = i.destination, groups = t.rows[i.first];
  for (int m = 0; m < MOST_ROWS; ++m) {
    Vector& row = t.tile[sum][m];
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int k = 0; k < groups; ++k) {
      const __m512i a = _mm512_set1_epi32(static_cast<int>(t.tile[i.second][m].dwords[k]));
      const __m512i b = _mm512_load_si512(&t.tile[i.first][k]);
      even = _mm512_fmadd_ps(even_elements(a), even_elements(b), even);
      odd = _mm512_fmadd_ps(odd_elements(a), odd_elements(b), odd);
    }
    const __m512 result = _mm512_add_ps(_mm512_load_ps(&row), _mm512_add_ps(even, odd));
    const __mmask16 wanted = m < t.rows[sum] ? columns_of(t, sum) : 0;
    _mm512_store_ps(&row, _mm512_maskz_mov_ps(wanted, result));
  }
  return true;
}

bool move_rows(const Instruction& i, const Frame& f, TileState& t) {
  const int tile = i.destination;
  if (!in_dwords(t, tile)) return false;
  const uint64_t start = address_of(i, f), stride = f.general[i.index] << i.shift;
  for (int m = 0; m < MOST_ROWS; ++m) {
    Vector& row = t.tile[tile][m];
    auto* memory = reinterpret_cast<void*>(start + m * stride);
    const __mmask16 wanted = m < t.rows[tile] ? columns_of(t, tile) : 0;
    if (i.operation == tilestored) {
      if (wanted) _mm512_mask_storeu_epi32(memory, wanted, _mm512_load_si512(&row));
    } else {
      _mm512_store_si512(
          &row, wanted ? _mm512_maskz_loadu_epi32(wanted, memory) : _mm512_setzero_si512());
    }
  }
  return true;
}

bool execute_tile(const Instruction& i, const Frame& f, TileState& t) {
  switch (i.operation) {
    case ldtilecfg: {
      Configuration wanted;
      std::memcpy(&wanted, reinterpret_cast<const void*>(address_of(i, f)), sizeof wanted);
      return configure(wanted, t);
    }
    case tilerelease: t = {}; return true;
    case tilezero:
      if (!usable(t, i.destination)) return false;
      std::memset(t.tile[i.destination], 0, sizeof t.tile[i.destination]);
      return true;
    case tdpbf16ps: return multiply(i, t);
    default: return move_rows(i, f, t);
  }
}

}  // namespace

// --- the handler of the emulated processor's exception 6, "invalid opcode" -------------------------
// It executes the instruction that the processor lacks and returns behind it, as an operating system
// would that emulates one. It runs on the emulated processor.

#define VISIBLE extern "C" __attribute__((visibility("default")))

VISIBLE TileState hk_tiles;
TileState hk_tiles;

VISIBLE uint64_t hk_interpreted;
uint64_t hk_interpreted;

extern "C" __attribute__((visibility("hidden"))) bool hk_interpret(Frame* frame) {
  Instruction instruction;
  if (!decode(reinterpret_cast<const uint8_t*>(frame->rip), instruction)) return false;
  const bool done = instruction.vector ? execute_vector(instruction, *frame)
                                       : execute_tile(instruction, *frame, hk_tiles);
  if (!done) return false;
  frame->rip += instruction.length;
  ++hk_interpreted;
  return true;
}

// The stack is the handler's own (IST), so the red zone of the interrupted code stays.
static_assert(sizeof(Frame) == 2304 && offsetof(Frame, general) == 2136);
asm(R"(
.text
.globl hk_invalid_opcode
hk_invalid_opcode:
  push %r15; push %r14; push %r13; push %r12; push %r11; push %r10; push %r9; push %r8
  push %rdi; push %rsi; push %rbp; push 112(%rsp); push %rbx; push %rdx; push %rcx; push %rax
  sub $2136, %rsp
.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
  vmovaps %zmm\n, 64*\n(%rsp)
.endr
.irp n,0,1,2,3,4,5,6,7
  kmovq %k\n, 2048+8*\n(%rsp)
.endr
  stmxcsr 2112(%rsp)
  ldmxcsr flushing(%rip)
  mov %rsp, %rdi
  call hk_interpret
  test %al, %al
  jz refused
.irp n,0,1,2,3,4,5,6,7
  kmovq 2048+8*\n(%rsp), %k\n
.endr
.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
  vmovaps 64*\n(%rsp), %zmm\n
.endr
  ldmxcsr 2112(%rsp)
  add $2136, %rsp
  pop %rax; pop %rcx; pop %rdx; pop %rbx; add $8, %rsp; pop %rbp; pop %rsi; pop %rdi
  pop %r8; pop %r9; pop %r10; pop %r11; pop %r12; pop %r13; pop %r14; pop %r15
  iretq
refused:
  hlt
.align 4
flushing: .long 0x9FC0  # FTZ, DAZ, nearest even, every exception masked
)");

}  // namespace hk::test
