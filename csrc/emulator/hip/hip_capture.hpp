// Stream capture: what is recorded instead of run, and the calls that a capture does not survive.
//
// Which call ends which capture, and with which number: as ROCm's clr does (hipamd/src,
// hip_internal.hpp and hip_stream.cpp). Stricter where clr only says so in its header: the null
// stream must not be used while a stream captures that waits for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "hip/hip_graph.hpp"
#include "hip/hip_types.hpp"

namespace hk::emulator::hip {

struct Event;
struct Stream;

// How many nodes of each stream come before something.
using Seen = std::map<Stream*, size_t>;

struct Capture {
  uint64_t id;
  CaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  bool invalidated = false;
  Nodes nodes = {};
  std::map<Stream*, Seen> streams = {};  // and what the next node of each comes after

  void record(Stream& stream, Node node);
};

// An event that was recorded in a capture marks a place in its graph, as long as it lasts.
struct CapturedEvent {
  std::weak_ptr<Capture> of;
  Seen seen;
};

class Captures {
 public:
  static CaptureMode& thread_mode();  // what this thread's unsafe calls respect

  void begin(Stream& stream, CaptureMode mode);
  Nodes end(Stream& stream);
  void forget(Stream& stream);  // which is destroyed
  CaptureStatus status(const Stream& stream) const;
  // Whether it is the null stream, and would wait for one that captures.
  bool forbid(const Stream& stream) const;

  // The capture that work on `stream` now belongs to, if any. Throws where there must be no work.
  Capture* active(Stream& stream);
  // Whether it was part of a capture: an event is recorded, a stream waits for one.
  bool record(Event& event, Stream& stream);
  bool wait(Stream& stream, Event& event);

  // Each of these calls invalidates the captures that it would disturb, and throws.
  void unsafe_call();                      // hipMalloc and others that wait in secret
  void synchronous_copy();                 // hipMemcpy, hipMemset
  void waiting_for_the_device();           // hipDeviceSynchronize
  void waiting_for(const Stream& stream);  // or asking whether it is done
  void waiting_for(const Event& event);    // likewise

 private:
  std::vector<std::shared_ptr<Capture>> all_;
  uint64_t last_id_ = 0;

  template <class Which>
  void refuse(Error error, Which disturbed);
  void check_null_stream(const Stream& stream);
  void drop(const std::shared_ptr<Capture>& capture);
};

}  // namespace hk::emulator::hip
