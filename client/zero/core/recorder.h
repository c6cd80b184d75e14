// Records what one micro-batch did, operator by operator: the sample for plans. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_RECORDER_H_
#define GEMINID_CLIENT_ZERO_CORE_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace geminid::zero {

// A moment lasts from one operator's start to the next operator's. If gradients are added one by
// one, a gradient that follows another one's reduction begins a moment too, since the two need no
// room together.
struct Moment {
  struct Use {
    uint32_t chunk = 0;
    bool invalidates = false;  // afterwards the device copy is a gradient on its way home
    friend bool operator==(const Use&, const Use&) = default;
  };
  std::vector<Use> uses;         // ascending
  std::vector<uint32_t> kept;    // held since an earlier moment: these do not move
  uint64_t workspace_bytes = 0;  // peak extent of non-model memory
  double compute_seconds = 0;    // without waits for the engine
};

// Records a micro-batch. Not thread-safe.
class Recorder {
 public:
  void Clear() { events_.clear(); }

  // A new moment uses these chunks. Operators of earlier moments still hold `kept`.
  void BeginMoment(std::vector<uint32_t> chunks, std::vector<uint32_t> kept = {});
  // The current moment uses this chunk too.
  void NoteUse(uint32_t chunk);
  // For the current moment.
  void NoteWorkspace(uint64_t extent_bytes);
  void NoteCompute(double seconds);
  // Replaces the measurement of any recorded moment.
  void SetCompute(size_t moment, double seconds);
  // A tensor of the chunk now holds a gradient: the chunk cannot leave before it is reduced.
  void NoteGradient(uint32_t chunk);
  // The chunk's reduction begins after the current moment.
  void NoteReduced(uint32_t chunk);

  // Whether a reduction was noted in the current moment.
  bool reduced() const { return !events_.empty() && !events_.back().reduced.empty(); }

  bool empty() const { return events_.empty(); }
  size_t size() const { return events_.size(); }

  // The sample. A chunk that holds a part of its gradient counts as used by every moment until its
  // reduction, since it must stay.
  std::vector<Moment> Moments() const;

  // A hash of the chunks that each moment uses and invalidates: equal for micro-batches that the
  // same plans fit. Comparable within this process only. nullopt if there was no moment.
  std::optional<uint64_t> Fingerprint() const;

  // The trained chunks in the order of their first use.
  std::vector<uint32_t> FirstUseOrder() const;

 private:
  struct Event {
    std::vector<uint32_t> chunks;
    std::vector<uint32_t> kept;
    std::vector<uint32_t> gradients;
    std::vector<uint32_t> reduced;
    uint64_t workspace_bytes = 0;
    double compute_seconds = 0;
  };
  std::vector<Event> events_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_RECORDER_H_
