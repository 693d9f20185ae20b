// The tiles of K and V of a cache whose rows may lie anywhere, on their way from memory to LDS.
#pragma once

#include "key_value_stream.hpp"

namespace hk::attention {

// As KeyValueStream, with an address for each lane. What a tile looks up are loads of this wave, a
// step ahead of their use.
template <class Shape, class Source>
struct LaneStream {
  using KeyTile = typename Tiles<Shape, Source>::Keys;
  using ValueTile = typename Tiles<Shape, Source>::Values;
  using KeyFiller = TileFiller<KeyTile, Shape, Source>;
  using ValueFiller = TileFiller<ValueTile, Shape, Source>;
  using Share = typename KeyFiller::Share;
  using Tensor = TensorRows<Source>;
  static constexpr int kRows = Share::kCopies;  // that a lane copies from, of a tile
  static constexpr int kLookUps = Source::look_ups(kRows);
  using Rows = Vec<u32, kRows>;
  using Found = typename Source::template Found<kRows>;

  Source source;
  u32 key_row, value_row;    // bytes from a row of the cache to the next
  u64 key_base, value_base;  // of the lane's bytes in row 0
  KeyFiller key_filler;
  ValueFiller value_filler;
  u32 lane_row;                       // of the lane's first row, from the wave's
  i32 row;                            // the wave's first one of the keys that are copied next
  Rows keys, values;                  // the rows of the cache that are
  Found found;                        // looked up for the rows after these
  Codes first_keys[2], first_values;  // of tiles 0 and 1, where codes are widened

  HK_DEVICE LaneStream(const Source& rows, const Tensor& key, const Tensor& value, i32 wave,
                       Lane lane)
      : source(rows), key_row(key.row_stride), value_row(value.row_stride),
        key_filler(wave, lane, {0}), value_filler(wave, lane, {0}),
        lane_row(Share::row(0, wave, lane)), row(key_filler.share.first_row) {
    key_base = key.base + key_filler.share.source[0];
    value_base = value.base + value_filler.share.source[0];
  }

  // As in KeyValueStream.
  template <bool kWaits>
  HK_DEVICE void start(KeyTile first, KeyTile second) {
    const Found before = source.template find<kRows>(row, lane_row);
    find_next();
    keys = source.rows(before);
    if constexpr (Source::kWidens) {
      const auto key_codes = [&] { return key_filler.load(addresses(keys, key_row, key_base).of); };
      const auto value_codes = [&] {
        return value_filler.load(addresses(values, value_row, value_base).of);
      };
      first_keys[0] = key_codes();
      advance<false>();
      first_keys[1] = key_codes();
      first_values = value_codes();
      advance<false>();
      key_filler.codes = key_codes();
      value_filler.codes = value_codes();
    } else {
      copy_keys(first);
      advance<kWaits>();
      copy_keys(second);
    }
  }

  HK_DEVICE void fill_first(KeyTile first, KeyTile second) {
    key_filler.store(first, first_keys[0]);
    key_filler.store(second, first_keys[1]);
  }

  HK_DEVICE void next_values() {
    values = keys;
    pin(values);
  }
  // kWaits: for the look-up, here and now; `found` then takes the next ones without being moved to.
  template <bool kWaits>
  HK_DEVICE void next_place() {
    row += KeyTile::kRows;
    pin_scalar(row);
    keys = source.rows(found);
    if constexpr (kWaits) pin(keys);
  }
  HK_DEVICE void next_keys() {}
  HK_DEVICE void find_next() {
    found = source.template find<kRows>(row + KeyTile::kRows, lane_row);
  }
  template <bool kWaits>
  HK_DEVICE void advance() {
    next_values();
    next_place<kWaits>();
    find_next();
  }

  template <int Piece>
  HK_DEVICE void copy_keys(KeyTile dst) {
    const auto from = addresses(keys, key_row, key_base);
    key_filler.template fill<Piece>(dst, from.of);
  }
  template <int Piece>
  HK_DEVICE void copy_values(ValueTile dst) {
    const auto from = addresses(values, value_row, value_base);
    value_filler.template fill<Piece>(dst, from.of);
  }
  HK_DEVICE void copy_keys(KeyTile dst) {
    static_for<0, KeyFiller::kPieces>([&](auto i) { copy_keys<i.value>(dst); });
  }
  HK_DEVICE void copy_values(ValueTile dst) {
    static_for<0, KeyFiller::kPieces>([&](auto i) { copy_values<i.value>(dst); });
  }

 private:
  HK_DEVICE static void pin(Rows& rows) {  // a vector of one has no register class
    if constexpr (kRows == 1) {
      u32 row = rows[0];
      pin_vector(row);
      rows[0] = row;
    } else {
      pin_vector(rows);
    }
  }
  struct Addresses {
    u64 of[kRows];
  };
  HK_DEVICE static Addresses addresses(Rows rows, u32 row_bytes, u64 base) {
    Addresses found;
    static_for<0, kRows>(
        [&](auto i) { found.of[i.value] = u64(rows[i.value]) * row_bytes + base; });
    return found;
  }
};

}  // namespace hk::attention
