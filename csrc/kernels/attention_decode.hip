// Decode attention: what attention_prefill.hip computes, of requests with a few query tokens each
// over many keys in a paged cache. See hk/args/attention_decode.hpp for the argument.
//
// Memory bounds it: each key and value is read once, for all query heads of its KV head, which are
// rows of one tile. So the loop is that of prefill, and what differs is who computes what.
//
//   add up all requests' tiles of keys; this workgroup's share of them is known
//   for each request that has tiles in the share:
//     its query rows against those tiles          (key_loop.hpp)
//     if the share has all of its tiles: divide, round, store
//     else: leave the sums in memory; the last of some workgroups to do so joins theirs, and so on
//       up a tree (join_level.hpp); the last of all stores
//
// Choices:
//   - The host knows no length, so that a captured launch serves any: the grid is as large as the
//     GPU, and each workgroup adds the lengths up, 64 at a time, one in each lane.
//   - Shares are equal within one tile, whatever the lengths are. A workgroup has several short
//     requests one after the other, or a part of a long one.
//   - Sums in memory are float32, of existing rows alone. They are joined in the order of the keys,
//     in groups that depend on lengths alone: results do not depend on which workgroup was last.
//   - What is needed between requests lies in vector registers (Deal), and the argument is read
//     again for each: the loop over keys has no scalar register to spare.
//   - Small tiles, and one wave of two or four that computes for a request with up to 32 rows. The
//     others copy: a wave copies 16 keys, since the next ones may lie in another page.
#include "attention/decode_kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_DECODE(64, 64, Window, paged, tokens, any_pages, split);
ATTENTION_DECODE(64, 128, Window, paged, tokens, any_pages, split);
ATTENTION_DECODE(128, 64, Window, paged, tokens, any_pages, split);
ATTENTION_DECODE(128, 128, Window, paged, tokens, any_pages, split);
ATTENTION_DECODE(256, 128, Window, paged, tokens, split);
