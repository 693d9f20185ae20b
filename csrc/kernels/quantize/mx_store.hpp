// Stores codes and scales of a block: to rows, or the order of the matrix unit
// (hk_backend/devices/hip/mx_layout.py).
#pragma once

#include "mx_encode.hpp"

namespace hk::quantize {

template <int Words>
HK_DEVICE void store_words(BoundedView to, u32 at, Vec<u32, Words> src) {
  if constexpr (Words == 4)
    __builtin_amdgcn_raw_buffer_store_b128(src, to.descriptor, at, 0, 0);
  else
    __builtin_amdgcn_raw_buffer_store_b64(src, to.descriptor, at, 0, 0);
}

// Stores a block's first 16 bytes, and what is left of them elsewhere.
template <int Words>
HK_DEVICE void store_codes(BoundedView to, u32 first, u32 rest, Vec<u32, Words> codes) {
  store_words<4>(to, first, __builtin_shufflevector(codes, codes, 0, 1, 2, 3));
  if constexpr (Words == 6) store_words<2>(to, rest, __builtin_shufflevector(codes, codes, 4, 5));
  if constexpr (Words == 8)
    store_words<4>(to, rest, __builtin_shufflevector(codes, codes, 4, 5, 6, 7));
}

HK_DEVICE void store_scale(BoundedView to, u32 at, u32 scale) {
  __builtin_amdgcn_raw_buffer_store_b8((unsigned char)scale, to.descriptor, at, 0, 0);
}

template <class Code>
HK_DEVICE void store_rows(const QuantizeMxArgs& args, const Place& place,
                          const Encoded<Code>& encoded) {
  constexpr u32 kBlockBytes = kBlock * Element<Code>::kBits / 8;
  const u32 blocks = u32(args.k) / kBlock, row_bytes = blocks * kBlockBytes;
  const u32 block = (place.first_column + place.column) / kBlock;
  const bool exists = place.exists(args);
  const BoundedView codes(address(args.codes) + wide_mul(place.first_row, row_bytes), kNowhere);
  const u32 at = exists ? place.row * row_bytes + block * kBlockBytes : kNowhere;
  store_codes(codes, at, at + 16, encoded.codes);
  const BoundedView scales(address(args.scales) + wide_mul(place.first_row, blocks), kNowhere);
  store_scale(scales, exists ? place.row * blocks + block : kNowhere, encoded.scale);
}

// Every lane stores: zeros where there is no element.
template <class Code>
HK_DEVICE void store_packed(const QuantizeMxArgs& args, const Place& place,
                            const Encoded<Code>& encoded) {
  constexpr u32 kBits = Element<Code>::kBits;
  constexpr u32 kWordBytes = Place::kRows * Place::kColumns / kBlock;  // scale words of 32 rows
  const u32 words = (u32(args.k) + Place::kColumns - 1) / Place::kColumns;
  const u32 block = (place.first_column + place.column) / kBlock, half = block % 2;
  const u32 in_words = place.first_row % Place::kRows + place.row;
  const BoundedView scales(
      address(args.scales) + wide_mul(place.first_row / Place::kRows, words * kWordBytes),
      kNowhere);
  store_scale(scales, block / 8 * kWordBytes + half * 128 + in_words * 4 + block / 2 % 4,
              encoded.scale);
  const BoundedView codes(
      address(args.codes) + wide_mul(place.first_row, words * (Place::kColumns / 8 * kBits)),
      place.first_row < u32(args.m) ? kNowhere : 0);
  if constexpr (kBits == 6) {
    const u32 part = block / 2 * (Place::kGroup * 48), group = place.first_row / Place::kGroup;
    store_codes(codes, part + half * 256 + place.row * 16,
                part + 512 + (half ^ group % 2) * 128 + place.row * 8, encoded.codes);
  } else {
    const u32 at = block * (Place::kGroup * kBlock * kBits / 8) + place.row * 16;
    store_codes(codes, at, at + Place::kGroup * 16, encoded.codes);
  }
}

}  // namespace hk::quantize
