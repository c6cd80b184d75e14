// What a client says of its host memory that a GPU's driver page-locks: in the first of the words
// that ClientCounters has to spare, which read as 0 where a client does not know of them.
#ifndef GEMINID_PROTO_SHM_HOST_REGISTRATION_H_
#define GEMINID_PROTO_SHM_HOST_REGISTRATION_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/shm/session_layout.h"

namespace geminid::shm {

// All may fall. What is neither registered nor refused waits.
struct HostRegistration {
  uint64_t bytes = 0;
  uint64_t registered_bytes = 0;
  uint64_t refused_bytes = 0;  // by the driver
  uint64_t pieces = 0;         // the memory is registered in
  uint64_t registered_pieces = 0;
  uint64_t refused_pieces = 0;
};

// More of either than any machine has: sums over all sessions stay far from an overflow.
inline constexpr uint64_t kMostRegistered = uint64_t{1} << 50;

// One thread of the client at a time. Its reader may see some words of before.
inline void StoreHostRegistration(const HostRegistration& registration, ClientCounters* counters) {
  const uint64_t words[] = {
      registration.bytes,  registration.registered_bytes,  registration.refused_bytes,
      registration.pieces, registration.registered_pieces, registration.refused_pieces};
  std::atomic<uint64_t>* to = counters->reserved;
  for (const uint64_t word : words) (to++)->store(word, std::memory_order_relaxed);
}

// A client may say anything: the parts are no more than the whole, and the whole than
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
