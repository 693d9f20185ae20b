// The tiles of K and V on their way from memory to LDS, as one wave sees them.
#pragma once

#include "tile_filler.hpp"

namespace hk::attention {

// The keys and values that a wave helps to copy, and where the next tile of them lies.
template <class Shape, class Source>
struct KeyValueStream {
  using KeyTile = typename Tiles<Shape, Source>::Keys;
  using ValueTile = typename Tiles<Shape, Source>::Values;
  using KeyFiller = TileFiller<KeyTile, Shape, Source>;
  using ValueFiller = TileFiller<ValueTile, Shape, Source>;
  using Share = typename KeyFiller::Share;
  static_assert(Share::kCopies == ValueFiller::Share::kCopies &&
                Share::kRowsSpanned == ValueFiller::Share::kRowsSpanned);
  using Tensor = TensorRows<Source>;
  static constexpr int kLookUps = 0;  // global loads of a step beside its copies

  Source source;
  Tensor keys, values;
  KeyFiller key_filler;
  ValueFiller value_filler;
  i32 seen;                      // of the first tile's rows, the first that any query sees
  i32 row;                       // of `place`
  typename Source::Found found;  // looked up for the place after it
  Place place;
  RowSpan key_span, value_span;              // of the next copies
  typename KeyFiller::Loaded first_keys[2];  // of tiles 0 and 1, where codes are widened
  typename ValueFiller::Loaded first_values;

  // `first`: that any of the workgroup's queries sees, in the first tile.
  HK_DEVICE KeyValueStream(const Source& rows, const Tensor& key, const Tensor& value, i32 first,
                           Channels channels, i32 wave, Lane lane)
      : source(rows), keys(key), values(value),
        key_filler(wave, lane, {key.row_stride, key.piece_stride}),
        value_filler(wave, lane, {value.row_stride, value.piece_stride}),
        seen(first % KeyTile::kRows),
        row(first / KeyTile::kRows * KeyTile::kRows + key_filler.share.first_row - KeyTile::kRows) {
    if constexpr (Shape::kPadded) {
      key_filler.end_rows(channels.keys, kNowhere, wave, lane);
      value_filler.end_rows(channels.values, kNowhere, wave, lane);
    }
  }

  // Starts copies to the first two tiles of keys; there must be a row. Codes are asked for, of all
  // tiles up to the first step at once: for `fill_first`.
  template <bool = false>
  HK_DEVICE void start(KeyTile first, KeyTile second) {
    find_next();
    next_place();
    find_next();
    next_keys();
    if constexpr (Source::kWidens) {
      first_keys[0] = key_filler.load(key_span);
      advance();
      first_keys[1] = key_filler.load(key_span);
      first_values = value_filler.load(value_span);
      advance();
      key_filler.codes = key_filler.load(key_span);
      value_filler.codes = value_filler.load(value_span);
    } else {
      copy_keys(first);
      advance();
      copy_keys(second);
    }
  }

  HK_DEVICE void fill_first(KeyTile first, KeyTile second) {
    key_filler.store(first, first_keys[0]);
    key_filler.store(second, first_keys[1]);
    value_filler.keep_from(first_values, seen);
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

  // Moves on to the next tile of values, and of keys: one more.
  template <bool = false>
  HK_DEVICE void advance() {
    next_values();
    next_place();
    find_next();
    next_keys();
  }

  template <int Piece>
  HK_DEVICE void copy_keys(KeyTile dst) {
    key_filler.template fill<Piece>(dst, key_span);
  }
  template <int Piece>
  HK_DEVICE void copy_values(ValueTile dst) {
    value_filler.template fill<Piece>(dst, value_span);
  }
  HK_DEVICE void copy_keys(KeyTile dst) {
    static_for<0, KeyFiller::kPieces>([&](auto i) { copy_keys<i.value>(dst); });
  }
  HK_DEVICE void copy_values(ValueTile dst) {
    static_for<0, KeyFiller::kPieces>([&](auto i) { copy_values<i.value>(dst); });
  }
};

}  // namespace hk::attention
