// Stream capture: it records work instead of running it, and some calls invalidate it.
//
// The same calls end the same captures with the same numbers as in ROCm's clr (hipamd/src,
// hip_internal.hpp and hip_stream.cpp). One rule is stricter than clr, which only documents it: the
// null stream must not be used while a stream that waits for it captures.
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

// Number of nodes of each stream that come before something.
using Seen = std::map<Stream*, size_t>;

struct Capture {
  uint64_t id;
  CaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  bool invalidated = false;
  Nodes nodes = {};
  std::map<Stream*, Seen> streams = {};  // streams, and what each one's next node comes after

  void record(Stream& stream, Node node);
};

// Place in a capture's graph of an event that was recorded in the capture, while that lasts.
struct CapturedEvent {
  std::weak_ptr<Capture> of;
  Seen seen;
};

class Captures {
 public:
  static CaptureMode& thread_mode();  // captures that this thread's unsafe calls respect

  void begin(Stream& stream, CaptureMode mode);
  Nodes end(Stream& stream);
  void forget(Stream& stream);  // called when the stream is destroyed
  CaptureStatus status(const Stream& stream) const;
  // Whether `stream` is the null stream and would wait for a stream that captures.
  bool forbid(const Stream& stream) const;

  // The capture that work on `stream` now belongs to, if any. Throws if no work is allowed.
  Capture* active(Stream& stream);
  // Records an event, or lets a stream wait for one. Returns whether it was part of a capture.
  bool record(Event& event, Stream& stream);
  bool wait(Stream& stream, Event& event);

  // Each of these calls invalidates the captures that it would disturb, and throws.
  void unsafe_call();                      // hipMalloc and other calls that may wait
  void synchronous_copy();                 // hipMemcpy, hipMemset
  void waiting_for_the_device();           // hipDeviceSynchronize
  void waiting_for(const Stream& stream);  // also asking whether the stream is done
  void waiting_for(const Event& event);    // also asking whether the event is done

 private:
  std::vector<std::shared_ptr<Capture>> all_;
  uint64_t last_id_ = 0;

  template <class Which>
  void refuse(Error error, Which disturbed);
  void check_null_stream(const Stream& stream);
  void drop(const std::shared_ptr<Capture>& capture);
};

}  // namespace hk::emulator::hip
