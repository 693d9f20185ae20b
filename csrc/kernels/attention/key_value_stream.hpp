// The tiles of K and V on their way from memory to LDS, as one wave sees them.
#pragma once

#include "shape.hpp"

namespace hk::attention {

// The keys and values that a wave helps to copy, and where the next tile of them lies.
template <class Shape, class Source>
struct KeyValueStream {
  using KeyTile = typename Tiles<Shape, Source::kSplit>::Keys;
  using ValueTile = typename Tiles<Shape, Source::kSplit>::Values;
  using Share = TileCopy<KeyTile, Shape::kWaves>;
  using ValueShare = TileCopy<ValueTile, Shape::kWaves>;
  static_assert(Share::kCopies == ValueShare::kCopies &&
                Share::kRowsSpanned == ValueShare::kRowsSpanned);
  using Tensor = TensorRows<Source>;
  static constexpr int kLookUps = 0;  // global loads of a step beside its copies

  Source source;
  Tensor keys, values;
  Share key_share;
  ValueShare value_share;
  i32 row;                       // of `place`
  typename Source::Found found;  // looked up for the place after it
  Place place;
  RowSpan key_span, value_span;  // of the next copies

  HK_DEVICE KeyValueStream(const Source& rows, const Tensor& key, const Tensor& value, i32 wave,
                           Lane lane)
      : source(rows), keys(key), values(value),
        key_share(wave, lane, {key.row_stride, key.piece_stride}),
        value_share(wave, lane, {value.row_stride, value.piece_stride}),
        row(key_share.first_row - KeyTile::kRows) {}

  // The first tile; there must be a row.
  HK_DEVICE void start() {
    find_next();
    next_place();
    find_next();
    next_keys();
  }

  // Four pieces of a step's addresses, so that they fit between matrix instructions. Past the last
  // row they go on: zeros are copied.
  HK_DEVICE void next_values() {
    value_span = values.span(place);
    pin_scalar(value_span.base, value_span.bytes);
  }
  template <bool = false>
  HK_DEVICE void next_place() {
    row += KeyTile::kRows;
    place = source.place(row, Share::kRowsSpanned, found);
    pin_scalar(row, place.block, place.row, place.count);
  }
  HK_DEVICE void next_keys() {
    key_span = keys.span(place);
    pin_scalar(key_span.base, key_span.bytes);
  }
  HK_DEVICE void find_next() { found = source.find(row + KeyTile::kRows); }

  // On to the next tile of values, and of keys: one more.
  template <bool = false>
  HK_DEVICE void advance() {
    next_values();
    next_place();
    find_next();
    next_keys();
  }

  HK_DEVICE void copy_keys(KeyTile dst) const { copy(dst, key_span, key_share); }
  HK_DEVICE void copy_values(ValueTile dst) const { copy(dst, value_span, value_share); }
};

}  // namespace hk::attention
