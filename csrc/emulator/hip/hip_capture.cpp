#include "hip/hip_capture.hpp"

#include <algorithm>
#include <utility>

#include "hip/hip_runtime.hpp"

namespace hk::emulator::hip {
namespace {

bool is_null(const Stream& stream) { return &stream == &stream.device->null_stream; }

void invalidate(Capture& capture, Error error) {
  capture.invalidated = true;
  throw Failure{error};
}

// Whether an unsafe call of this thread disturbs the capture.
bool is_guarded(const Capture& capture) {
  const CaptureMode own = Captures::thread_mode();
  if (own == kCaptureRelaxed || capture.mode == kCaptureRelaxed) return false;
  return capture.thread == std::this_thread::get_id() ||
         (own == kCaptureGlobal && capture.mode == kCaptureGlobal);
}

// Whether `null_stream` would wait for one of the capture's streams.
bool would_wait(const Stream& null_stream, const Capture& capture) {
  return std::any_of(capture.streams.begin(), capture.streams.end(), [&](const auto& of) {
    return of.first->blocking && of.first->device == null_stream.device;
  });
}

}  // namespace

void Capture::record(Stream& stream, Node node) {
  nodes.push_back(std::move(node));
  ++streams[&stream][&stream];
}

CaptureMode& Captures::thread_mode() {
  static thread_local CaptureMode mode = kCaptureGlobal;
  return mode;
}

void Captures::begin(Stream& stream, CaptureMode mode) {
  if (is_null(stream)) throw Failure{kStreamCaptureUnsupported};
  if (stream.capture) throw Failure{kIllegalState};
  stream.capture =
      std::make_shared<Capture>(Capture{++last_id_, mode, std::this_thread::get_id(), &stream});
  stream.capture->streams[&stream] = {};
  all_.push_back(stream.capture);
}

Nodes Captures::end(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) throw Failure{kIllegalState};
  if (capture->origin != &stream) throw Failure{kStreamCaptureUnmatched};
  if (capture->mode != kCaptureRelaxed && capture->thread != std::this_thread::get_id())
    throw Failure{kStreamCaptureWrongThread};
  drop(capture);
  if (capture->invalidated) throw Failure{kStreamCaptureInvalidated};
  Seen& joined = capture->streams[&stream];
  for (auto& [fork, seen] : capture->streams)
    if (seen[fork] > joined[fork]) throw Failure{kStreamCaptureUnjoined};
  return std::move(capture->nodes);
}

void Captures::forget(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  if (capture->origin == &stream) return drop(capture);
  capture->invalidated = true;
  capture->streams.erase(&stream);
}

void Captures::drop(const std::shared_ptr<Capture>& capture) {
  for (auto& [stream, seen] : capture->streams) stream->capture.reset();
  std::erase(all_, capture);
}

CaptureStatus Captures::status(const Stream& stream) const {
  if (!stream.capture) return kNotCapturing;
  return stream.capture->invalidated ? kCaptureInvalidated : kCapturing;
}

bool Captures::forbid(const Stream& stream) const {
  return is_null(stream) && std::any_of(all_.begin(), all_.end(), [&](const auto& capture) {
           return would_wait(stream, *capture);
         });
}

Capture* Captures::active(Stream& stream) {
  check_null_stream(stream);
  if (stream.capture && stream.capture->invalidated) throw Failure{kStreamCaptureInvalidated};
  return stream.capture.get();
}

bool Captures::record(Event& event, Stream& stream) {
  Capture* capture = active(stream);
  event.captured = {};
  if (!capture) return false;
  event.captured = {stream.capture, capture->streams[&stream]};
  event.mark.reset();
  return true;
}

bool Captures::wait(Stream& stream, Event& event) {
  const std::shared_ptr<Capture> of = event.captured.of.lock();
  Capture* own = active(stream);
  if (!of) {
    if (own && event.mark) invalidate(*own, kStreamCaptureIsolation);
    return own;
  }
  if (is_null(stream)) throw Failure{kInvalidHandle};
  if (own && own != of.get()) {
    own->invalidated = true;
    invalidate(*of, kStreamCaptureMerge);
  }
  if (of->invalidated) throw Failure{kStreamCaptureInvalidated};
  stream.capture = of;
  Seen& before = of->streams[&stream];
  for (auto [from, nodes] : event.captured.seen) before[from] = std::max(before[from], nodes);
  return true;
}

void Captures::unsafe_call() { refuse(kStreamCaptureUnsupported, is_guarded); }

void Captures::synchronous_copy() {
  refuse(kStreamCaptureImplicit, [](const Capture&) { return true; });
}

void Captures::waiting_for_the_device() {
  refuse(kStreamCaptureUnsupported, [](const Capture&) { return true; });
}

void Captures::waiting_for(const Stream& stream) {
  if (stream.capture) invalidate(*stream.capture, kStreamCaptureUnsupported);
  check_null_stream(stream);
  unsafe_call();
}

void Captures::waiting_for(const Event& event) {
  if (auto of = event.captured.of.lock()) invalidate(*of, kCapturedEvent);
  unsafe_call();
}

template <class Which>
void Captures::refuse(Error error, Which disturbed) {
  bool any = false;
  for (auto& capture : all_)
    if (disturbed(*capture)) any = capture->invalidated = true;
  if (any) throw Failure{error};
}

void Captures::check_null_stream(const Stream& stream) {
  if (!is_null(stream)) return;
  refuse(kStreamCaptureImplicit,
         [&](const Capture& capture) { return would_wait(stream, capture); });
}

}  // namespace hk::emulator::hip
