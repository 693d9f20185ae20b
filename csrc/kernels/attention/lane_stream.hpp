// The tiles of K and V of a cache whose rows may lie anywhere, on their way from memory to LDS.
#pragma once

#include "key_value_stream.hpp"

namespace hk::attention {

// The keys and values that a wave helps to copy, with an address for each lane. A tile's look-ups
// are loads of this wave, a step ahead of their use. Rows of keys and of values are equally far
// apart, so one product serves both. For the functions see KeyValueStream.
template <class Shape, class Source>
struct LaneStream {
  using KeyTile = typename Tiles<Shape, Source>::Keys;
  using ValueTile = typename Tiles<Shape, Source>::Values;
  using KeyFiller = TileFiller<KeyTile, Shape, Source>;
  using ValueFiller = TileFiller<ValueTile, Shape, Source>;
  using Share = typename KeyFiller::Share;
  using Tensor = TensorRows<Source>;
  static constexpr int kRows = Share::kLaneRows;  // of a tile
  static constexpr int kLookUps = Source::look_ups(kRows);
  using Found = typename Source::template Found<kRows>;
  struct Addresses {
    u64 of[kRows];
  };

  Source source;
  u32 row_bytes;    // from a row of the cache to the next
  u64 key_base;     // of the lane's bytes in row 0 of the keys
  u64 value_apart;  // from there to those of the values
  KeyFiller key_filler;
  ValueFiller value_filler;
  u32 lane_row;            // of the lane's first row, from the wave's
  i32 seen;                // from there the first row that any query sees
  i32 row;                 // the wave's first one of the keys that are copied next
  Addresses keys, values;  // that are
  Found found;             // looked up for the rows after these
  typename KeyFiller::Loaded first_keys[2];  // of tiles 0 and 1, where codes are widened
  typename ValueFiller::Loaded first_values;

  // `first`: that any of the workgroup's queries sees, in the first tile.
  HK_DEVICE LaneStream(const Source& rows, const Tensor& key, const Tensor& value, i32 first,
                       Channels channels, i32 wave, Lane lane)
      : source(rows), row_bytes(key.row_stride), key_filler(wave, lane, {0}),
        value_filler(wave, lane, {0}), lane_row(Share::row(0, wave, lane)),
        seen(first % KeyTile::kRows - key_filler.share.first_row),
        row(first / KeyTile::kRows * KeyTile::kRows + key_filler.share.first_row) {
    // There must be something; keys beside it are cleared where they are read.
    if constexpr (Shape::kPadded) {
      key_filler.end_rows(channels.keys, 0, wave, lane);
      value_filler.end_rows(channels.values, 0, wave, lane);
    }
    key_base = key.base + key_filler.share.source[0];
    value_apart = value.base + value_filler.share.source[0] - key_base;
  }

  // Starts the first two tiles of keys.
  template <bool kWaits>
  HK_DEVICE void start(KeyTile first, KeyTile second) {
    // Codes that nobody sees would be NaN, perhaps: rather the first ones that somebody does.
    const u32 from = Source::kWidens ? max(i32(lane_row), seen) : lane_row;
    const Found before = source.template find<kRows>(row, from);
    find_next();
    keys = addresses(before);
    if constexpr (Source::kWidens) {
      const auto key_codes = [&] { return key_filler.load(keys.of); };
      const auto value_codes = [&] { return value_filler.load(values.of); };
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
    for (int i = 0; i < kRows; ++i) values.of[i] = keys.of[i] + value_apart;
    pin(values);
  }
  // kWaits: for the look-up, here and now; `found` then takes the next ones without being moved to.
  template <bool kWaits>
  HK_DEVICE void next_place() {
    row += KeyTile::kRows;
    pin_scalar(row);
    keys = addresses(found);
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
    key_filler.template fill<Piece>(dst, keys.of);
  }
  template <int Piece>
  HK_DEVICE void copy_values(ValueTile dst) {
    value_filler.template fill<Piece>(dst, values.of);
  }
  HK_DEVICE void copy_keys(KeyTile dst) {
    static_for<0, KeyFiller::kPieces>([&](auto i) { copy_keys<i.value>(dst); });
  }
  HK_DEVICE void copy_values(ValueTile dst) {
    static_for<0, KeyFiller::kPieces>([&](auto i) { copy_values<i.value>(dst); });
  }

 private:
  HK_DEVICE static void pin(Addresses& addresses) {
    for (u64& each : addresses.of) pin_vector(each);
  }
  HK_DEVICE Addresses addresses(const Found& looked_up) const {
    const Vec<u32, kRows> rows = source.rows(looked_up);
    Addresses found;
    static_for<0, kRows>(
        [&](auto i) { found.of[i.value] = u64(rows[i.value]) * row_bytes + key_base; });
    return found;
  }
};

}  // namespace hk::attention
