// The tree in which a request's partial results are joined. Of some neighbours the workgroup that
// arrives last leaves one result, and goes on to the next level. One workgroup would take longer to
// read all results of a long request than each takes to read its keys.
#pragma once

#include "hk/types/global_view.hpp"

namespace hk::attention {

// Results of `count` shares, to be joined. Number i is that of share `first + i * apart`, or of share
// `last` if that comes before it.
struct Results {
  u32 first, last, apart, count;

  // The share in whose place their joint result is left.
  HK_DEVICE u32 place() const { return first + 1; }
};

// A workgroup's way up the tree of its request, whose shares are those from `begins` to `last`.
//
// Groups of neighbours have kFan results. The last one has at least kLeast, for which the one before
// it has that many less: so it has enough shares for its joint results of all levels.
//
// Each group has a counter. They are those of the request's first shares: there are fewer groups
// than shares that have keys of nobody else.
class JoinLevel {
 public:
  static constexpr u32 kFan = 8, kLeast = kFan / 2;

  HK_DEVICE JoinLevel(u32 begins, u32 last_share, u32 share)
      : begin(begins), last(last_share), counters(begins), results(last - begin + 1),
        own(share - begin) {}

  HK_DEVICE bool is_last() const { return results <= kFan; }
  HK_DEVICE u32 counter() const { return counters + group(); }
  HK_DEVICE Results joined() const {
    const u32 from = first(),
              end = is_in_last() ? results : clamp_scalar(from + kFan, last_first());
    const u32 end_share = is_in_last() ? last : begin + (end - 1) * apart;
    return {begin + from * apart, end_share, apart, end - from};
  }
  HK_DEVICE void rise() {
    const u32 groups = (results - 1) / kFan + 1;
    last = begin + last_first() * apart + 1;
    own = group(), counters += groups, results = groups;
    begin += 1, apart *= kFan;
  }

 private:
  u32 begin, last, counters;  // shares with the level's first and last result, and first counter
  u32 results, own;           // of the level; the workgroup's number among them
  u32 apart = 1;

  // The first result of the last group, of the workgroup's group, and that group's number.
  HK_DEVICE u32 last_first() const {
    if (is_last()) return 0;
    const u32 rest = (results - 1) % kFan + 1;
    return results - (rest < kLeast ? rest + kLeast : rest);
  }
  HK_DEVICE bool is_in_last() const { return own >= last_first(); }
  HK_DEVICE u32 first() const { return is_in_last() ? last_first() : own / kFan * kFan; }
  HK_DEVICE u32 group() const { return (is_in_last() ? results - 1 : own) / kFan; }
};

}  // namespace hk::attention
