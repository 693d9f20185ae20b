#include "grid.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

namespace hk::hip {
namespace {

constexpr size_t kDeepest = 16;  // most values on the stack

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("grid formula: " + what);
}

int64_t floor_div(int64_t value, int64_t divisor) {
  if (!divisor) refuse("division by zero");
  return value / divisor - (value % divisor != 0 && (value < 0) != (divisor < 0));
}

}  // namespace

GridProgram::GridProgram(const std::vector<Instruction>& program) {
  static const std::map<std::string, Op> operators = {
      {"+", Op::add},        {"-", Op::subtract},        {"*", Op::multiply},
      {"//", Op::floor_div}, {"ceil_div", Op::ceil_div}, {"min", Op::min},
      {"max", Op::max}};
  size_t depth = 0;
  for (const auto& [kind, operand] : program) {
    if (kind == "number") {
      steps_.push_back({Op::number, std::get<int64_t>(operand)});
    } else if (kind == "name") {
      const std::string& name = std::get<std::string>(operand);
      auto known = std::find(names_.begin(), names_.end(), name);
      if (known == names_.end()) known = names_.insert(known, name);
      steps_.push_back({Op::name, known - names_.begin()});
    } else {
      auto found = operators.find(std::get<std::string>(operand));
      if (kind != "apply" || found == operators.end()) refuse("an instruction " + kind);
      if (depth < 2) refuse("an operator without two operands");
      steps_.push_back({found->second, 0});
      depth -= 2;
    }
    if (++depth > kDeepest) refuse("too deep");
  }
  if (depth < 1 || depth > 3) refuse("one to three dimensions are valid");
}

Grid GridProgram::evaluate(const int64_t* values) const {
  int64_t stack[kDeepest];
  size_t top = 0;
  for (const auto& [op, operand] : steps_) {
    if (op == Op::number || op == Op::name) {
      stack[top++] = op == Op::number ? operand : values[operand];
      continue;
    }
    const int64_t right = stack[--top];
    int64_t& left = stack[top - 1];
    bool overflow = false;
    switch (op) {
      case Op::add: overflow = __builtin_add_overflow(left, right, &left); break;
      case Op::subtract: overflow = __builtin_sub_overflow(left, right, &left); break;
      case Op::multiply: overflow = __builtin_mul_overflow(left, right, &left); break;
      case Op::floor_div: left = floor_div(left, right); break;
      case Op::ceil_div: left = -floor_div(-left, right); break;
      case Op::min: left = std::min(left, right); break;
      default: left = std::max(left, right);
    }
    if (overflow) refuse("a value past 64 bits");
  }
  Grid grid = {1, 1, 1};
  for (size_t i = 0; i < top; ++i) {
    if (stack[i] < 0 || stack[i] > std::numeric_limits<unsigned>::max())
      refuse(std::to_string(stack[i]) + " workgroups are not valid");
    grid[i] = unsigned(stack[i]);
  }
  return grid;
}

}  // namespace hk::hip
