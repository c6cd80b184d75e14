// A trainer's report about its batch (docs/goodput.md). It uses reserved words of ClientCounters,
// after those of proto/shm/disk_use.h. They read as 0 if the client does not know them.
#ifndef GEMINID_PROTO_SHM_BATCH_NUMBERS_H_
#define GEMINID_PROTO_SHM_BATCH_NUMBERS_H_

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "proto/shm/session_layout.h"

namespace geminid::shm {

// All numbers count sequences; 0: unknown.
struct BatchNumbers {
  double per_step = 0;
  double noise_scale = 0;
  double advised_per_step = 0;
};

inline constexpr int kFirstWordOfBatchNumbers = 9;
inline constexpr double kMostSequences = 1e15;  // more than any step has

// Called by one thread of the client. A reader may see a mix of old and new words.
inline void StoreBatchNumbers(const BatchNumbers& numbers, ClientCounters* counters) {
  std::atomic<uint64_t>* const to = counters->reserved + kFirstWordOfBatchNumbers;
  to[0].store(std::bit_cast<uint64_t>(numbers.per_step), std::memory_order_relaxed);
  to[1].store(std::bit_cast<uint64_t>(numbers.noise_scale), std::memory_order_relaxed);
  to[2].store(std::bit_cast<uint64_t>(numbers.advised_per_step), std::memory_order_relaxed);
}

// A client may report anything, so impossible numbers of sequences count as unknown.
inline BatchNumbers LoadBatchNumbers(const ClientCounters& counters) {
  const auto read = [&](int word) {
    const std::atomic<uint64_t>& from = counters.reserved[kFirstWordOfBatchNumbers + word];
    const auto value = std::bit_cast<double>(from.load(std::memory_order_relaxed));
    return value > 0 && value <= kMostSequences ? value : 0.0;
  };
  return {.per_step = read(0), .noise_scale = read(1), .advised_per_step = read(2)};
}

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_BATCH_NUMBERS_H_
