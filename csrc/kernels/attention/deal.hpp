// The tiles of keys of all requests, dealt to the workgroups of a KV head in equal shares. Lengths
// are known to the device alone, so each workgroup adds them up to find its own.
#pragma once

#include "hk/args/attention_decode.hpp"
#include "hk/grid.hpp"

namespace hk::attention {

// A wave-uniform number in a vector register: for long lives, where scalar registers are short.
class KeptByLanes {
 public:
  HK_DEVICE KeptByLanes(u32 uniform) : value(uniform) { pin_vector(value); }
  HK_DEVICE operator u32() const { return __builtin_amdgcn_readfirstlane(value); }

 private:
  u32 value;
};

// Equal shares of a whole, a number of things. The first shares have one thing more. Shares below
// kFewest would cost more to join than they save: then some shares have nothing.
struct EqualShares {
  static constexpr u32 kFewest = 8;
  u32 count, each, more;

  HK_DEVICE EqualShares(u32 whole, u32 shares)
      : count(max(u32(clamp_scalar(whole / kFewest, shares)), 1u)), each(whole / count),
        more(whole - each * count) {}
  HK_DEVICE u32 begin(u32 share) const { return min(share, count) * each + min(share, more); }
  // The share that has `number`, which is below the whole.
  HK_DEVICE u32 share_of(u32 number) const {
    const u32 large = more * (each + 1);
    const u32 found = number < large ? number / (each + 1) : more + (number - large) / each;
    return __builtin_amdgcn_readfirstlane(found);  // the division is a vector instruction
  }
};

// A workgroup's tiles of keys of one request: those from `first` to `end`, which may be none.
struct DealtTiles {
  i32 request, start, length, keys;  // the request; its first token, tokens and keys
  i32 first_tile;                    // the first one that a row's window holds
  u32 before, all;                   // where its tiles begin in the whole; their number
  u32 first, end;

  HK_DEVICE bool begins() const { return first == 0; }
  HK_DEVICE bool is_whole() const { return begins() && end == all; }
};

// Goes through a workgroup's share, request by request. 64 requests are asked at once, one a lane.
// The whole that is shared is time, in tiles: the begin of a request takes as long as Begin tiles.
template <int TileKeys, u32 Begin>
class Deal {
 public:
  HK_DEVICE Deal(const AttentionDecodeArgs& args, u32 share, Lane in)
      : lane(in), whole(total(args, in)), place(shares(args).begin(share)),
        stop(shares(args).begin(share + 1)) {
    ask(args);
  }
  // Computed again where they are needed: registers are short during the loop over keys.
  HK_DEVICE EqualShares shares(const AttentionDecodeArgs& args) const {
    return EqualShares(whole, args.shares);
  }
  HK_DEVICE bool has_more() const { return place < stop; }

  // Moves on to the next request. There must be one.
  HK_DEVICE void move(const AttentionDecodeArgs& args) {
    u64 later;
    while (!(later = __builtin_amdgcn_ballot_w64(ends > place))) {
      asked = asked + arch::kLanes;
      ask(args);
    }
    found = u32(__builtin_ctzll(later));
    first = place;
    place = min(u32(__builtin_amdgcn_readlane(ends, found)), stop);
  }

  // The request at hand. Lanes keep it, as no scalar registers are free during the loop over keys.
  HK_DEVICE DealtTiles at() const {
    const i32 which = u32(found);
    const auto of = [&](auto value) { return __builtin_amdgcn_readlane(value, which); };
    const u32 all = of(own.tiles), before = of(ends) - all;
    const auto tile = [&](u32 at) { return u32(max(i32(at - before), 0)); };
    return {i32(asked + which),
            i32(of(own.start)),
            i32(of(own.length)),
            i32(of(own.keys)),
            i32(of(own.first_tile)),
            before,
            all,
            tile(first),
            tile(place)};
  }

 private:
  Lane lane;
  KeptByLanes whole;  // tiles of all requests, and their begins
  // Places in the whole.
  KeptByLanes place;                   // the end of the workgroup's part of the request at hand
  KeptByLanes stop;                    // the end of its share
  KeptByLanes first = 0u;              // the begin of that part
  KeptByLanes asked = 0u, found = 0u;  // the first of the 64; the lane of the request at hand

  struct Request {
    i32 start, length, keys, first_tile;
    u32 tiles;
    HK_DEVICE u32 cost() const { return tiles > 0 ? Begin + tiles : 0; }
  };
  Request own;   // of this lane
  u32 ends = 0;  // of its tiles, in the whole

  // Past the last request there are zeros.
  HK_DEVICE static Request request(const AttentionDecodeArgs& args, i32 number) {
    const BoundedView starts(address(args.query_start_loc), (args.num_requests + 1) * 4),
        lengths(address(args.seq_lens), args.num_requests * 4);
    const i32 start = load_word(starts, number * 4), end = load_word(starts, number * 4 + 4);
    const i32 keys = load_word(lengths, number * 4);
    const i32 length = max(min(end, args.num_tokens) - start, 0);
    const i32 first_tile = max(keys - length + 1 - args.window, 0) / TileKeys;
    const i32 tiles = max(ceil_div(keys, TileKeys) - first_tile, 1);
    return {start, length, keys, first_tile, length > 0 ? tiles : 0u};
  }
  HK_DEVICE static u32 total(const AttentionDecodeArgs& args, Lane lane) {
    u32 sum = 0;
    for (i32 first = 0; first < args.num_requests; first += arch::kLanes)
      sum += request(args, first + lane.id).cost();
    return __builtin_amdgcn_readlane(sum_up_to(sum), arch::kLanes - 1);
  }
  HK_DEVICE void ask(const AttentionDecodeArgs& args) {
    own = request(args, asked + lane.id);
    ends = __builtin_amdgcn_readlane(ends, arch::kLanes - 1) + sum_up_to(own.cost());
  }
};

}  // namespace hk::attention
