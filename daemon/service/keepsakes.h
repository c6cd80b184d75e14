// The names under which a daemon's descriptors are kept for its successor.
//
//   manifest                        the records of all chunks
//   node                            what there was to hand out
//   s7-books, s7-state, ...         of session 7: see the kinds below
//   s7-pool12, s7-slab0             its pools by id, and the slabs of its arena in order
#ifndef GEMINID_DAEMON_SERVICE_KEEPSAKES_H_
#define GEMINID_DAEMON_SERVICE_KEEPSAKES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/holder/descriptor_store.h"
#include "proto/shm/types.h"

namespace geminid::service {

inline constexpr char kKeptManifest[] = "manifest";
inline constexpr char kKeptNode[] = "node";
inline constexpr char kKeptBooks[] = "books";
inline constexpr char kKeptState[] = "state";
inline constexpr char kKeptClient[] = "client";
inline constexpr char kKeptCommit[] = "commit";
inline constexpr char kKeptDaemonEvent[] = "daemon-event";
inline constexpr char kKeptClientEvent[] = "client-event";
inline constexpr char kKeptSocket[] = "socket";

std::string KeepsakeName(shm::SessionId session, const std::string& what);
std::string PoolName(shm::SessionId session, shm::PoolId pool);
std::string SlabName(shm::SessionId session, uint32_t slab);

// What an earlier daemon left, sorted.
struct Keepsakes {
  struct OfSession {
    std::map<std::string, base::UniqueFd> kinds;  // by the name of the kind
    std::map<shm::PoolId, base::UniqueFd> pools;
    std::map<uint32_t, base::UniqueFd> slabs;
    std::vector<std::string> names;  // of all of them
  };
  base::UniqueFd manifest;  // invalid: there was no earlier daemon
  base::UniqueFd node;
  std::map<shm::SessionId, OfSession> sessions;
  std::vector<std::string> strangers;  // names that this release does not know; closed here
};

Keepsakes Sort(std::vector<holder::KeptDescriptor> kept);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_KEEPSAKES_H_
