// A client's report about host memory that a GPU's driver page-locks. It uses the first reserved
// words of ClientCounters, which read as 0 if the client does not know them.
#ifndef GEMINID_PROTO_SHM_HOST_REGISTRATION_H_
#define GEMINID_PROTO_SHM_HOST_REGISTRATION_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/shm/session_layout.h"

namespace geminid::shm {

// All numbers may fall. Memory that is neither registered nor refused still waits.
struct HostRegistration {
  uint64_t bytes = 0;
  uint64_t registered_bytes = 0;
  uint64_t refused_bytes = 0;  // refused by the driver
  uint64_t pieces = 0;         // parts that are registered one by one
  uint64_t registered_pieces = 0;
  uint64_t refused_pieces = 0;
};

// More bytes or pieces than any machine has, so that sums over sessions stay far from an overflow.
inline constexpr uint64_t kMostRegistered = uint64_t{1} << 50;

// One thread of the client calls it at a time. A reader may see a mix of old and new words.
inline void StoreHostRegistration(const HostRegistration& registration, ClientCounters* counters) {
  const uint64_t words[] = {
      registration.bytes,  registration.registered_bytes,  registration.refused_bytes,
      registration.pieces, registration.registered_pieces, registration.refused_pieces};
  std::atomic<uint64_t>* to = counters->reserved;
  for (const uint64_t word : words) (to++)->store(word, std::memory_order_relaxed);
}

// A client may report anything, so the result is bounded: the parts by the whole, and the whole by
// kMostRegistered.
inline HostRegistration LoadHostRegistration(const ClientCounters& counters) {
  const auto read = [&](int word, uint64_t most) {
    return std::min(counters.reserved[word].load(std::memory_order_relaxed), most);
  };
  HostRegistration registration;
  registration.bytes = read(0, kMostRegistered);
  registration.registered_bytes = read(1, registration.bytes);
  registration.refused_bytes = read(2, registration.bytes - registration.registered_bytes);
  registration.pieces = read(3, kMostRegistered);
  registration.registered_pieces = read(4, registration.pieces);
  registration.refused_pieces = read(5, registration.pieces - registration.registered_pieces);
  return registration;
}

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_HOST_REGISTRATION_H_
