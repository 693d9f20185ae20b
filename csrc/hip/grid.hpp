// A grid formula as a program for a stack machine, compiled by hk_backend/kernels/grid.py.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "library.hpp"

namespace hk::hip {

// One instruction: ("number", 3), ("name", "num_tokens") or ("apply", "+"). A program leaves x, y
// and z on the stack.
using Instruction = std::pair<std::string, std::variant<int64_t, std::string>>;

class GridProgram {
 public:
  explicit GridProgram(const std::vector<Instruction>& program);
  const std::vector<std::string>& names() const { return names_; }
  // Workgroups for `values`, one for each of `names()`, in that order.
  Grid evaluate(const int64_t* values) const;

 private:
  enum class Op : uint8_t { number, name, add, subtract, multiply, floor_div, ceil_div, min, max };
  struct Step {
    Op op;
    int64_t operand;  // the number, or the name's index
  };
  std::vector<Step> steps_;
  std::vector<std::string> names_;
};

}  // namespace hk::hip
