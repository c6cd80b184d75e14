// The identifiers of the wire contract, by the names the core uses.
#ifndef GEMINID_DAEMON_CORE_BASICS_IDS_H_
#define GEMINID_DAEMON_CORE_BASICS_IDS_H_

#include "proto/shm/session_layout.h"
#include "proto/shm/types.h"

namespace geminid::core {

using shm::ChunkId;
using shm::ChunkKind;
using shm::DeviceIndex;
using shm::Direction;
using shm::PoolId;
using shm::Priority;
using shm::SessionId;
using shm::TicketId;
using shm::Tier;
using shm::TransferCause;

using shm::kNoDeadline;

// A ticket number has the epoch of the daemon that granted it above this many bits. A completion
// word that was written for an earlier daemon's ticket therefore never matches a new ticket.
inline constexpr int kTicketCountBits = 40;
constexpr uint64_t FirstTicketOf(uint64_t epoch) { return (epoch << kTicketCountBits) + 1; }

inline constexpr SessionId kNoSession{0};
inline constexpr PoolId kNoPool{0};
inline constexpr TicketId kNoTicket{0};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_BASICS_IDS_H_
