// The lease fast path: a client holds a resident chunk without a message, a lock or a system call.
//
// Two tables of 64-bit words, each with one word per chunk. No word is written by two processes, so
// a process that is killed at any instruction leaves either a lease or none.
//
//   state[]  written by the daemon, read by the client (mapped read-only there)
//     63            56 55                    32 31                                     0
//    +----------------+------------------------+----------------------------------------+
//    | residency (8)  | generation (24)        | slot (32)                              |
//    +----------------+------------------------+----------------------------------------+
//   lease[]  written by the client, read by the daemon; 0 means no lease
//     63                    40 39             24 23             16 15                   0
//    +------------------------+-----------------+-----------------+---------------------+
//    | generation (24)        | count (16)      | mode (8)        | check (16)          |
//    +------------------------+-----------------+-----------------+---------------------+
//
// Acquire (client): read the state; if resident, store the lease; full fence; read the state again.
// The client holds the chunk only if it is still RESIDENT with the same generation. Evict (daemon):
// publish EVICT_PENDING; full fence; read the lease. One side sees the other (Dekker's argument):
// the client sees EVICT_PENDING and withdraws, or the daemon sees the lease and cancels.
// EVICT_PENDING never counts as held, because the daemon may already have read an empty lease word.
//
// Here the client's store and fence are one sequentially consistent compare-and-swap, which also
// lets the threads of one client share a word. The daemon's store and load are sequentially
// consistent as well.
#ifndef GEMINID_PROTO_SHM_LEASE_H_
#define GEMINID_PROTO_SHM_LEASE_H_

#include <atomic>
#include <cstdint>

#include "proto/shm/limits.h"

namespace geminid::shm {

enum class Residency : uint8_t {
  kNone = 0,          // no such chunk
  kAbsent = 1,        // no device copy
  kFilling = 2,       // the device extent is being written
  kResident = 3,      // valid on the device
  kEvictPending = 4,  // the daemon is about to read the lease word
  kEvicting = 5,      // the daemon saw no lease: the device copy is leaving
};

const char* Name(Residency residency);

inline constexpr uint32_t kGenerationMask = 0xffffffu;
inline constexpr uint32_t kMaxLeaseCount = 0xffffu;

struct StateWord {
  Residency residency = Residency::kNone;
  uint32_t generation = 0;  // 24 bits; changes whenever the device copy goes
  uint32_t slot = 0;        // slot in which the device copy begins; uses all 32 bits

  constexpr uint64_t Encode() const {
    return static_cast<uint64_t>(residency) << 56 |
           static_cast<uint64_t>(generation & kGenerationMask) << kSlotBits | slot;
  }
  static constexpr StateWord Decode(uint64_t word) {
    return {static_cast<Residency>(word >> 56),
            static_cast<uint32_t>(word >> kSlotBits) & kGenerationMask,
            static_cast<uint32_t>(word)};
  }
  constexpr uint64_t device_offset() const { return slot * kSlotBytes; }
};
static_assert(kSlotBits == 32, "a slot's number fills its type, and no mask is needed");
// The number of the slot that begins at an offset, a multiple of kSlotBytes below kMaxArenaBytes.
constexpr uint32_t SlotOf(uint64_t device_offset) {
  return static_cast<uint32_t>(device_offset / kSlotBytes);
}

struct LeaseWord {
  uint32_t generation = 0;
  uint16_t count = 0;
  uint8_t mode = 0;

  // A torn, punched or forged word does not carry this value.
  static constexpr uint16_t Check(uint64_t upper) {
    const uint64_t mixed = (upper >> 16) * 0x9e3779b97f4a7c15ull;
    return static_cast<uint16_t>(mixed >> 48) | 1u;
  }
  constexpr uint64_t Encode() const {
    if (count == 0) return 0;
    const uint64_t upper = static_cast<uint64_t>(generation & kGenerationMask) << 40 |
                           static_cast<uint64_t>(count) << 24 | static_cast<uint64_t>(mode) << 16;
    return upper | Check(upper);
  }
  static constexpr LeaseWord Decode(uint64_t word) {
    return {static_cast<uint32_t>(word >> 40) & kGenerationMask, static_cast<uint16_t>(word >> 24),
            static_cast<uint8_t>(word >> 16)};
  }
  static constexpr bool IsIntact(uint64_t word) {
    return word == 0 || static_cast<uint16_t>(word) == Check(word & ~uint64_t{0xffff});
  }
};

// The two decisive lines of the protocol, as switches. A test turns each one off and shows that the
// protocol then breaks. Products use the defaults.
struct SoundLeaseProtocol {
  static constexpr bool kClientFence = true;
  static constexpr bool kPendingCountsAsHeld = false;
};

// Client: tries to hold the chunk of these two words. Returns true and the state word it saw, or
// false if the chunk is not resident or is leaving. Threads of one client may call it concurrently.
// Cost: two loads, one compare-and-swap, one fence; no system call.
template <typename Protocol = SoundLeaseProtocol>
bool TryAcquireLease(const std::atomic<uint64_t>& state, std::atomic<uint64_t>& lease,
                     StateWord* held);

// Client: gives up one hold.
inline void ReleaseLease(std::atomic<uint64_t>& lease) {
  uint64_t word = lease.load(std::memory_order_relaxed);
  for (;;) {
    LeaseWord next = LeaseWord::Decode(word);
    if (next.count == 0) return;
    next.count -= 1;
    if (lease.compare_exchange_weak(word, next.Encode(), std::memory_order_release)) return;
  }
}

// Daemon: whether a lease word holds a chunk of this generation. A word that is not intact counts
// as held: a client that corrupts its own table only keeps its own memory.
inline bool IsHeld(uint64_t lease_word, uint32_t generation) {
  if (lease_word == 0) return false;
  if (!LeaseWord::IsIntact(lease_word)) return true;
  const LeaseWord lease = LeaseWord::Decode(lease_word);
  return lease.count != 0 && lease.generation == (generation & kGenerationMask);
}

template <typename Protocol>
bool TryAcquireLease(const std::atomic<uint64_t>& state, std::atomic<uint64_t>& lease,
                     StateWord* held) {
  const StateWord before = StateWord::Decode(state.load(std::memory_order_acquire));
  if (before.residency != Residency::kResident) return false;
  uint64_t word = lease.load(std::memory_order_relaxed);
  for (;;) {
    LeaseWord next = LeaseWord::Decode(word);
    // A hold on an older generation can only be another thread's failed attempt, not yet withdrawn.
    if (next.count != 0 && next.generation != before.generation) return false;
    if (next.count == kMaxLeaseCount) return false;
    next.generation = before.generation;
    next.count += 1;
    if constexpr (!Protocol::kClientFence) {
      lease.store(next.Encode(), std::memory_order_relaxed);
      break;
    } else if (lease.compare_exchange_weak(word, next.Encode(), std::memory_order_seq_cst)) {
      break;
    }
  }
  const StateWord after = StateWord::Decode(state.load(std::memory_order_seq_cst));
  const bool resident =
      after.residency == Residency::kResident ||
      (Protocol::kPendingCountsAsHeld && after.residency == Residency::kEvictPending);
  if (resident && after.generation == before.generation) {
    *held = after;
    return true;
  }
  ReleaseLease(lease);
  return false;
}

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_LEASE_H_
