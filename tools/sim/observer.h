// Records the times, bytes and memory of a simulation.
#ifndef GEMINID_TOOLS_SIM_OBSERVER_H_
#define GEMINID_TOOLS_SIM_OBSERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/sim/event_queue.h"

namespace geminid::sim {

// The activities of a rank, each on its own track.
enum class Track : uint8_t { kCompute, kWait, kUp, kDown, kCollectives, kOptimizer, kDisk };
inline constexpr int kTracks = 7;
const char* Name(Track track);

// Why a rank's computation waits: the client's causes, and two of the simulator's.
enum class WaitCause : uint8_t {
  kCopy,     // the chunk is being copied to the device
  kGather,   // the chunk waits for its all-gather, and so for the other ranks
  kUpdate,   // the chunk's new weights are not ready yet
  kReduce,   // at the end of the step: gradients are on their way
  kSpace,    // no room yet
  kBarrier,  // the slowest rank, and agreeing on the norm
  kOutage,   // a process or a daemon is down
};
inline constexpr int kWaitCauses = 7;
const char* Name(WaitCause cause);

// The owners of device memory.
enum class Owner : uint8_t {
  kLoading,      // an extent that weights are being copied or gathered into
  kWeights,      // gathered weights
  kLeaving,      // gradients, and weights that are copied back, on their way to the host
  kActivations,  // the reservation at the top of the arena
};
inline constexpr int kOwners = 4;
const char* Name(Owner owner);

using DeviceBytes = std::array<uint64_t, kOwners>;
uint64_t Total(const DeviceBytes& bytes);

struct Span {
  int rank = 0;
  Track track = Track::kCompute;
  std::string name;
  core::Time begin;
  core::Time end;
};

struct MemorySample {
  int rank = 0;
  core::Time at;
  DeviceBytes bytes{};
};

// The use of resources by one rank, over the whole simulation or since the last Reset.
struct RankUse {
  std::array<double, kTracks> busy_seconds{};
  std::array<double, kWaitCauses> wait_seconds{};
  uint64_t up_bytes = 0;
  uint64_t down_bytes = 0;
  uint64_t disk_read_bytes = 0;
  uint64_t disk_write_bytes = 0;
  DeviceBytes peak{};  // when the sum was greatest
};

class Observer {
 public:
  // `keeps_events`: records every span and every change of memory, for a timeline.
  Observer(EventQueue* events, int ranks, size_t moments, bool keeps_events);

  void Add(Span span);
  void AddWait(int rank, WaitCause cause, core::Time since);
  void AddBytes(int rank, Track track, uint64_t bytes);
  void AddDiskBytes(int rank, uint64_t read_bytes, uint64_t written_bytes);
  // ChangeMemory adds to the bytes of `owner`; SetMemory replaces them.
  void ChangeMemory(int rank, Owner owner, int64_t by_bytes);
  void SetMemory(int rank, Owner owner, uint64_t bytes);
  void SetMoment(int rank, size_t moment);

  // Clears times, bytes and peaks, but not the memory that is occupied now.
  void Reset();

  const RankUse& rank(int rank) const { return ranks_[static_cast<size_t>(rank)].use; }
  const DeviceBytes& memory(int rank) const { return ranks_[static_cast<size_t>(rank)].now; }
  // For each moment of the iteration, the bytes by owner when their sum was greatest, in the rank's
  // last visit of the moment.
  const std::vector<DeviceBytes>& moments(int rank) const {
    return ranks_[static_cast<size_t>(rank)].moments;
  }
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<MemorySample>& samples() const { return samples_; }

 private:
  struct Rank {
    RankUse use;
    DeviceBytes now{};
    std::vector<DeviceBytes> moments;
    size_t moment = 0;
  };

  void NoteMemory(int rank);
  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  EventQueue* const events_;
  const bool keeps_events_;
  std::vector<Rank> ranks_;
  std::vector<Span> spans_;
  std::vector<MemorySample> samples_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_OBSERVER_H_
