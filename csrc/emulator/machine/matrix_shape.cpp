#include "machine/matrix_shape.hpp"

#include <charconv>

namespace hk::emulator {

MatrixShape matrix_shape(std::string_view name) {
  MatrixShape s;
  const size_t x = name.find('x');
  const char* end = name.data() + name.size();
  const char* p = name.data() + name.rfind('_', x) + 1;
  for (unsigned* field : {&s.m, &s.n, &s.k}) p = std::from_chars(p, end, *field).ptr + 1;
  if (const size_t b = name.find("b_", size_t(p - name.data()) - 1); b != name.npos)
    if (const size_t u = name.rfind('_', b); u != name.npos && u + 1 < b)
      std::from_chars(name.data() + u + 1, name.data() + b, s.blocks);
  return s;
}

}  // namespace hk::emulator
