#include "checks/waits.hpp"

namespace hk::emulator {

InFlight& Waits::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<InFlight>());
    free_.push_back(all_.back().get());
  }
  InFlight& f = *free_.back();
  free_.pop_back();
  f.what = InFlight::What::store;
  f.count = f.bytes = 0;
  f.superseded = 0;
  f.accesses = 1;
  f.flat = f.lds_waited = f.lds_reads = f.lds_writes = false;
  f.lds_lanes = 0;
  return f;
}

void Waits::supersede(const InFlight& later) {
  for (InFlight* f : vector_)
    for (int d = 0; d < f->count; ++d)
      if (f->first + d >= later.first && f->first + d < later.first + later.count)
        f->superseded |= uint16_t(1u << d);
}

void Waits::issue_vector(InFlight& f) { vector_.push_back(&f); }
void Waits::issue_lds(InFlight& f) { lds_.push_back(&f); }
void Waits::issue_flat(InFlight& f) {
  f.flat = true;
  vector_.push_back(&f);
}

void Waits::clear() {
  for (auto* queue : {&vector_, &lds_}) {
    free_.insert(free_.end(), queue->begin(), queue->end());
    queue->clear();
  }
}

}  // namespace hk::emulator
