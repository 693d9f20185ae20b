// AMX's register tile in bfloat16: 32 rows of A times a panel of B of 32 columns, with sums in 2 x
// 2 tile registers of 16 x 16 float32. One instruction (tdpbf16ps) takes 32 elements along K.
//
// tdpbf16ps rounds to nearest even and treats denormals as zero, whatever MXCSR says. It sums the
// even and the odd products of a row separately, and adds both sums at its end. Source: Intel
// Architecture Instruction Set Extensions Programming Reference, TDPBF16PS.
#pragma once

#include "common/pair_gemm.hpp"

namespace hk::cpu::HK_ISA {

#if defined(__AMX_BF16__)

constexpr bool kHasTiles = true;
constexpr int64_t kTileRows = 16, kTileK = 32, kTileColumns = 16;
static_assert(NR == 2 * kTileColumns);

// Assembly, since GCC's intrinsics do not tell the compiler that a tile is loaded from memory.
#define HK_TILE_LOAD(tile, from, stride_bytes) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(stride_bytes) : "memory")
#define HK_TILE_STORE(tile, to, stride_bytes) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(stride_bytes) : "memory")
#define HK_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
#define HK_TILE_MULTIPLY(sums, a, b) \
  asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::)

// Configures the calling thread's tile registers while it lives: `rows` rows of A and of sums (0 to
// 5), 16 of B (6 and 7), each of 64 bytes.
class Tiles {
 public:
  HK_INLINE explicit Tiles(int64_t rows = kTileRows) {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof(config) == 64);
    for (int i = 0; i < 6; ++i) config.rows[i] = uint8_t(rows);
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  HK_INLINE ~Tiles() { asm volatile("tilerelease" ::); }
  Tiles(const Tiles&) = delete;
};

// Sums of `halves` (1 or 2) times 16 rows in tile registers 0 to 3. Registers 4 and 5 hold A, 6 and
// 7 hold B.
template <int halves>
struct TileSums {
  HK_INLINE void zero() const {
    HK_TILE_ZERO(0);
    HK_TILE_ZERO(1);
    if constexpr (halves == 2) {
      HK_TILE_ZERO(2);
      HK_TILE_ZERO(3);
    }
  }
  HK_INLINE void load_from(const float* c, int64_t c_row) const {
    const int64_t stride = c_row * int64_t(sizeof(float));
    HK_TILE_LOAD(0, c, stride);
    HK_TILE_LOAD(1, c + kTileColumns, stride);
    if constexpr (halves == 2) {
      HK_TILE_LOAD(2, c + kTileRows * c_row, stride);
      HK_TILE_LOAD(3, c + kTileRows * c_row + kTileColumns, stride);
    }
  }
  HK_INLINE void store_to(float* c, int64_t c_row) const {
    const int64_t stride = c_row * int64_t(sizeof(float));
    HK_TILE_STORE(0, c, stride);
    HK_TILE_STORE(1, c + kTileColumns, stride);
    if constexpr (halves == 2) {
      HK_TILE_STORE(2, c + kTileRows * c_row, stride);
      HK_TILE_STORE(3, c + kTileRows * c_row + kTileColumns, stride);
    }
  }
  // sums += A[:, begin:end] * B[begin:end, panel]; rows of A are `a_row` elements apart.
  HK_INLINE void multiply(const uint16_t* a, int64_t a_row, const uint16_t* b, int64_t begin,
                          int64_t end) const {
    const int64_t a_stride = 2 * a_row, b_stride = 4 * NR;
    for (int64_t k = begin; k < end; k += kTileK) {
      HK_TILE_LOAD(6, b + k * NR, b_stride);
      HK_TILE_LOAD(4, a + k, a_stride);
      HK_TILE_MULTIPLY(0, 4, 6);
      HK_TILE_LOAD(7, b + k * NR + 2 * kTileColumns, b_stride);
      HK_TILE_MULTIPLY(1, 4, 7);
      if constexpr (halves == 2) {
        HK_TILE_LOAD(5, a + kTileRows * a_row + k, a_stride);
        HK_TILE_MULTIPLY(2, 5, 6);
        HK_TILE_MULTIPLY(3, 5, 7);
      }
    }
  }
};

// Sums of up to four tiles of B side by side, in tile registers 0 to 3, beside the rows of one tile
// of A, as many as `Tiles` has configured. Register 4 holds A, 6 and 7 hold B.
class TileRow {
 public:
  HK_INLINE explicit TileRow(int64_t tiles) : tiles_(tiles) {}

  HK_INLINE void zero() const {
    HK_TILE_ZERO(0);
    HK_TILE_ZERO(1);
    HK_TILE_ZERO(2);
    HK_TILE_ZERO(3);
  }
  HK_INLINE void load_from(const float* c, int64_t c_row) const {
    const int64_t stride = c_row * int64_t(sizeof(float));
    HK_TILE_LOAD(0, c, stride);
    if (tiles_ > 1) HK_TILE_LOAD(1, c + kTileColumns, stride);
    if (tiles_ > 2) HK_TILE_LOAD(2, c + 2 * kTileColumns, stride);
    if (tiles_ > 3) HK_TILE_LOAD(3, c + 3 * kTileColumns, stride);
  }
  HK_INLINE void store_to(float* c, int64_t c_row) const {
    const int64_t stride = c_row * int64_t(sizeof(float));
    HK_TILE_STORE(0, c, stride);
    if (tiles_ > 1) HK_TILE_STORE(1, c + kTileColumns, stride);
    if (tiles_ > 2) HK_TILE_STORE(2, c + 2 * kTileColumns, stride);
    if (tiles_ > 3) HK_TILE_STORE(3, c + 3 * kTileColumns, stride);
  }
  // sums += A B over 32 elements along K. Rows of A are `a_row` elements apart. `b(i)`: tile i of B,
  // 16 rows of 64 neighbouring bytes.
  template <class F>
  HK_INLINE void multiply(const uint16_t* a, int64_t a_row, F b) const {
    constexpr int64_t b_stride = 64;
    HK_TILE_LOAD(4, a, 2 * a_row);
    HK_TILE_LOAD(6, b(0), b_stride);
    HK_TILE_MULTIPLY(0, 4, 6);
    if (tiles_ > 1) {
      HK_TILE_LOAD(7, b(1), b_stride);
      HK_TILE_MULTIPLY(1, 4, 7);
    }
    if (tiles_ > 2) {
      HK_TILE_LOAD(6, b(2), b_stride);
      HK_TILE_MULTIPLY(2, 4, 6);
    }
    if (tiles_ > 3) {
      HK_TILE_LOAD(7, b(3), b_stride);
      HK_TILE_MULTIPLY(3, 4, 7);
    }
  }

 private:
  int64_t tiles_;
};

#undef HK_TILE_LOAD
#undef HK_TILE_STORE
#undef HK_TILE_ZERO
#undef HK_TILE_MULTIPLY

#else

constexpr bool kHasTiles = false;
constexpr int64_t kTileRows = 1;

// Without AMX there are no tiles to configure.
struct Tiles {
  HK_INLINE explicit Tiles(int64_t = kTileRows) {}
  HK_INLINE ~Tiles() {}
};

#endif

}  // namespace hk::cpu::HK_ISA
