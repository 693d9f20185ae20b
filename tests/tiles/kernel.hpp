// What the kernels of the tile tests share: their argument, memory as words, LDS filled and dumped.
#pragma once

#include "hk/hk.hpp"

namespace hk {

struct TileTestArgs {
  void* buffer[6];
  i32 number[6];
};

template <class T>
using Global = T __attribute__((address_space(1)))*;
template <class T = u32>
HK_DEVICE Global<T> words(void* buffer) {
  return (Global<T>)buffer;
}

// A lane's words to out[lane][0...].
template <class Words>
HK_DEVICE void dump(Global<u32> out, const Words& value) {
  static_assert(sizeof(value) % 4 == 0);
  constexpr int kWords = sizeof(value) / 4;
  struct Plain {
    u32 word[kWords];
  };
  const auto plain = __builtin_bit_cast(Plain, value);
  static_for<0, kWords>([&](auto i) { out[this_lane().id * kWords + i] = plain.word[i]; });
}

// The inverse: a lane's words from in[lane][0...].
template <class Words>
HK_DEVICE void undump(Words& value, Global<const u32> in) {
  constexpr int kWords = sizeof(value) / 4;
  struct Plain {
    u32 word[kWords];
  } plain;
  static_for<0, kWords>([&](auto i) { plain.word[i] = in[this_lane().id * kWords + i]; });
  value = __builtin_bit_cast(Words, plain);
}

extern __attribute__((shared)) u32 lds[];

// All of LDS from, or to, an image of its words.
HK_DEVICE void fill_lds(void* image, i32 bytes, int threads) {
  for (i32 i = __builtin_amdgcn_workitem_id_x(); i < bytes / 4; i += threads)
    lds[i] = words(image)[i];
  synchronize();
}
HK_DEVICE void dump_lds(void* image, i32 bytes, int threads) {
  synchronize();
  for (i32 i = __builtin_amdgcn_workitem_id_x(); i < bytes / 4; i += threads)
    words(image)[i] = lds[i];
}

}  // namespace hk
