// The tiles of K and V of a cache whose rows may lie anywhere, on their way from memory to LDS.
#pragma once

#include "key_value_stream.hpp"

namespace hk::attention {

// As KeyValueStream, with an address for each lane. What a tile looks up are loads of this wave, a
// step ahead of their use.
template <class Shape, class Source>
struct LaneStream {
  using KeyTile = typename Shape::Tile;
  using ValueTile = KeyTile;
  using Share = TileCopy<KeyTile, Shape::kWaves>;
  using Tensor = TensorRows<Source>;
  using Pair = typename Source::Pair;
  static constexpr int kLookUps = Source::kLookUps;
  static_assert(Share::kCopies == Source::kNeighbours);

  Source source;
  u32 key_row, value_row;    // bytes from a row of the cache to the next
  u64 key_base, value_base;  // of the lane's bytes in row 0
  Share share;
  u32 lane_row;                  // of the lane's first row, from the wave's
  i32 row;                       // the wave's first one of the keys that are copied next
  Pair keys, values;             // the rows of the cache that are
  typename Source::Found found;  // looked up for the rows after these

  HK_DEVICE LaneStream(const Source& rows, const Tensor& key, const Tensor& value, i32 wave,
                       Lane lane)
      : source(rows), key_row(key.row_stride), value_row(value.row_stride), share(wave, lane, {0}),
        lane_row(Share::row(0, wave, lane)), row(share.first_row) {
    key_base = key.base + share.source[0];
    value_base = value.base + share.source[0];
  }

  // The first tile; there must be a row.
  HK_DEVICE void start() {
    const auto first = source.find(row, lane_row);
    find_next();
    keys = source.rows(first);
  }

  HK_DEVICE void next_values() {
    values = keys;
    pin_vector(values);
  }
  // kWaits: for the look-up, here and now; `found` then takes the next ones without being moved to.
  template <bool kWaits>
  HK_DEVICE void next_place() {
    row += KeyTile::kRows;
    pin_scalar(row);
    keys = source.rows(found);
    if constexpr (kWaits) pin_vector(keys);
  }
  HK_DEVICE void next_keys() {}
  HK_DEVICE void find_next() { found = source.find(row + KeyTile::kRows, lane_row); }
  template <bool kWaits>
  HK_DEVICE void advance() {
    next_values();
    next_place<kWaits>();
    find_next();
  }

  HK_DEVICE void copy_keys(KeyTile dst) const { copy_rows(dst, keys, key_row, key_base); }
  HK_DEVICE void copy_values(ValueTile dst) const { copy_rows(dst, values, value_row, value_base); }

 private:
  HK_DEVICE void copy_rows(KeyTile dst, Pair at, u32 row_bytes, u64 base) const {
    u64 from[Share::kCopies];
    static_for<0, Share::kCopies>([&](auto i) { from[i] = u64(at[i.value]) * row_bytes + base; });
    copy(dst, from, share);
  }
};

template <class Shape>
struct KeyValueStream<Shape, TokenRows> : LaneStream<Shape, TokenRows> {
  using LaneStream<Shape, TokenRows>::LaneStream;
};
template <class Shape>
struct KeyValueStream<Shape, AnyPagedRows> : LaneStream<Shape, AnyPagedRows> {
  using LaneStream<Shape, AnyPagedRows>::LaneStream;
};

}  // namespace hk::attention
