// How many bytes of the arena model and workspace use, now and at the peak of each and of both.
#ifndef GEMINID_CLIENT_ZERO_BASICS_ARENA_METER_H_
#define GEMINID_CLIENT_ZERO_BASICS_ARENA_METER_H_

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace geminid::zero {

// Thread-safe.
class ArenaMeter {
 public:
  struct Reading {
    uint64_t model_bytes = 0;
    uint64_t workspace_bytes = 0;
    uint64_t peak_model_bytes = 0;
    uint64_t peak_workspace_bytes = 0;
    uint64_t peak_total_bytes = 0;
    uint64_t model_bytes_at_peak = 0;  // of peak_total_bytes; the rest was workspace
  };

  void AddModel(int64_t bytes) { Add(&reading_.model_bytes, bytes); }
  void AddWorkspace(int64_t bytes) { Add(&reading_.workspace_bytes, bytes); }

  Reading Read() const {
    std::lock_guard lock(mutex_);
    return reading_;
  }

 private:
  void Add(uint64_t* field, int64_t bytes) {
    std::lock_guard lock(mutex_);
    *field += static_cast<uint64_t>(bytes);
    Reading& r = reading_;
    r.peak_model_bytes = std::max(r.peak_model_bytes, r.model_bytes);
    r.peak_workspace_bytes = std::max(r.peak_workspace_bytes, r.workspace_bytes);
    if (r.model_bytes + r.workspace_bytes <= r.peak_total_bytes) return;
    r.peak_total_bytes = r.model_bytes + r.workspace_bytes;
    r.model_bytes_at_peak = r.model_bytes;
  }

  mutable std::mutex mutex_;
  Reading reading_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_ARENA_METER_H_
