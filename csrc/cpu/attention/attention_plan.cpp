#include "attention/attention_plan.hpp"

#include <algorithm>
#include <utility>

#include "attention/sequence.hpp"

namespace hk::cpu {

namespace {

constexpr int64_t kFewestRows = 48, kPackedRows = 512, kItemsPerThread = 6;

class Planner {
 public:
  Planner(const AttentionArgs& args, const AttentionKernels& kernels, int threads,
          int64_t split_elements)
      : args_(args), kernels_(kernels), threads_(threads),
        most_rows_(std::max(kFewestRows, 65536 / std::max(args.head_size, args.value_size))),
        fewest_keys_(std::max<int64_t>(1, split_elements / args.head_size)) {
    for (int64_t r = 0; r < args.num_requests; ++r)
      if (const Sequence sequence(args, r); sequence.num_queries)
        total_ += cost_of(sequence, 0, sequence.num_rows());
    total_ *= double(args.num_kv_heads);
  }

  Plan plan() {
    for (int64_t r = 0; r < args_.num_requests; ++r)
      if (const Sequence sequence(args_, r); sequence.num_queries) cut_request(sequence, r);
    std::stable_sort(items_.begin(), items_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    plan_.items.reserve(items_.size());
    for (const auto& [cost, item] : items_) plan_.items.push_back(item);
    return std::move(plan_);
  }

 private:
  // Cost of rows under one KV head, in query-key pairs. Packing a key costs as much as two blocks
  // of rows.
  double cost_of(const Sequence& sequence, int64_t begin, int64_t end) const {
    const int64_t first = sequence.visible(sequence.position(begin)).size();
    const int64_t last = sequence.visible(sequence.position(end - 1)).size();
    const int64_t packed = 2 * kernels_.rows_per_block * sequence.visible(begin, end).size();
    return std::max(double(first + last) / 2 * double(end - begin) + double(packed), 1.0);
  }

  int64_t most_splits(Range keys) const { return std::max<int64_t>(1, keys.size() / fewest_keys_); }

  // Number of rows of an item; `share`: items that a KV head of the request gets for balance.
  int64_t rows_of_item(int64_t rows, double share, int64_t splits) const {
    if (threads_ == 1) return most_rows_;
    const auto balanced = int64_t(double(rows) * std::min(1.0, double(splits) / share));
    return std::clamp(balanced, kFewestRows, most_rows_);
  }

  int64_t splits_of(const Sequence& sequence, double cost, double share) const {
    const int64_t rows = sequence.num_rows();
    const int64_t blocks = ceil_div(rows, std::min(most_rows_, kPackedRows));
    if (cost * threads_ <= total_ * double(blocks)) return 1;
    const int64_t most = most_splits(sequence.visible(0, rows));
    const int64_t splits = std::clamp<int64_t>(int64_t(share) / blocks, 1, most);
    const bool smallest = rows_of_item(rows, share, splits) == kFewestRows;
    const bool enough = rows * args_.num_kv_heads >= 2 * threads_ * kFewestRows;
    return smallest && enough ? 1 : splits;
  }

  void cut_request(const Sequence& sequence, int64_t request) {
    const int64_t rows = sequence.num_rows();
    const double cost = cost_of(sequence, 0, rows);
    const double share = cost * kItemsPerThread * threads_ / total_;
    const int64_t splits = splits_of(sequence, cost, share);
    // Items are whole blocks of rows, of even sizes.
    int64_t chunk = rows_of_item(rows, share, splits);
    chunk = round_up(ceil_div(rows, ceil_div(rows, chunk)), kernels_.rows_per_block);
    const Range keys{0, sequence.num_keys};
    for (int64_t begin = 0; begin < rows; begin += chunk)
      cut_rows(sequence, {request, 0, begin, std::min(rows, begin + chunk), keys}, splits);
  }

  void cut_rows(const Sequence& sequence, WorkItem item, int64_t splits) {
    const int64_t begin = item.row_begin, end = item.row_end;
    const Range keys = sequence.visible(begin, end);
    const double cost = cost_of(sequence, begin, end);
    splits = std::min(splits, most_splits(keys));
    plan_.largest_rows = std::max(plan_.largest_rows, end - begin);
    for (item.kv_head = 0; item.kv_head < args_.num_kv_heads; ++item.kv_head)
      if (splits == 1)
        items_.push_back({cost, item});
      else
        split_keys(item, keys, splits, cost / double(splits));
  }

  void split_keys(WorkItem item, Range keys, int64_t splits, double cost) {
    const int64_t apart = (item.row_end - item.row_begin) * partial_row(args_.value_size);
    item.partial = plan_.partial_floats;
    add_joints(item, splits, apart);
    for (int64_t s = 0; s < splits; ++s, item.partial += apart) {
      item.keys = {boundary(keys, s, splits), boundary(keys, s + 1, splits)};
      items_.push_back({cost, item});
    }
    plan_.partial_floats = item.partial;
  }

  // First key of split `s`, which is the first of a panel, so that no panel is computed twice.
  int64_t boundary(Range keys, int64_t s, int64_t splits) const {
    if (s == splits) return keys.end;
    const int64_t panel = kernels_.keys_per_panel;
    return (keys.begin + keys.size() * s / splits) / panel * panel;
  }

  void add_joints(WorkItem rows, int64_t splits, int64_t apart) {
    const int64_t end = rows.row_end, row = partial_row(args_.value_size);
    for (int64_t begin = rows.row_begin; begin < end; begin += kFewestRows) {
      rows.row_begin = begin;
      rows.row_end = std::min(end, begin + kFewestRows);
      plan_.joints.push_back({rows, splits, apart});
      rows.partial += kFewestRows * row;
    }
  }

  const AttentionArgs& args_;
  const AttentionKernels& kernels_;
  int threads_;
  int64_t most_rows_, fewest_keys_;
  double total_ = 0;  // cost of the whole call
  std::vector<std::pair<double, WorkItem>> items_;
  Plan plan_;
};

}  // namespace

Plan plan_attention(const AttentionArgs& args, const AttentionKernels& kernels, int threads,
                    int64_t split_elements) {
  return Planner(args, kernels, threads, split_elements).plan();
}

}  // namespace hk::cpu
