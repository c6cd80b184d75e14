// The names under which a daemon's descriptors are kept for its successor.
//
//   manifest                        the records of all chunks
//   node                            what there was to hand out
//   s7-books, s7-state, ...         of session 7 and its first client: see the kinds below
//   s7-books.2, s7-state.2, ...     of that client's second successor; but there is one s7-commit
//   s7-pool12, s7-slab0             its pools by id, and the slabs of its arena in order
//   s7-plan3, s7-plan3.2            the third plan of its first client, and of its third client
//
// A name is given once, since not every store replaces what had it. What a successor has comes
// beside what its predecessor had, the books last, and only then that goes: at any instant one of
// them is there as a whole.
#ifndef GEMINID_DAEMON_SERVICE_HERITAGE_KEEPSAKES_H_
#define GEMINID_DAEMON_SERVICE_HERITAGE_KEEPSAKES_H_

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

// `which_client`: how many the session had before this one.
std::string KeepsakeName(shm::SessionId session, const std::string& what,
                         uint64_t which_client = 0);
std::string PoolName(shm::SessionId session, shm::PoolId pool);
std::string SlabName(shm::SessionId session, uint32_t slab);
// `number`: of that client's plans.
std::string PlanName(shm::SessionId session, uint64_t number, uint64_t which_client);

// What an earlier daemon left, sorted.
struct Keepsakes {
  struct OfSession {
    std::map<std::string, base::UniqueFd> kinds;  // of the newest client that has them all
    uint64_t which_client = 0;
    std::map<shm::PoolId, base::UniqueFd> pools;
    std::map<uint32_t, base::UniqueFd> slabs;
    std::map<uint64_t, base::UniqueFd> plans;  // of that client, by number
    std::vector<std::string> names;            // of all of them
  };
  base::UniqueFd manifest;  // invalid: there was no earlier daemon
  base::UniqueFd node;
  std::map<shm::SessionId, OfSession> sessions;
  // Closed here: of earlier clients, or half kept, and names that this release does not know.
  std::vector<std::string> needless;
};

Keepsakes Sort(std::vector<holder::KeptDescriptor> kept);

// Ends the session as far as its client is concerned: takes its memory back, closes its connection,
// and removes all of it from the store.
void GiveUp(holder::DescriptorStore* store, const Keepsakes::OfSession& kept);
// Of every session, and the node's own descriptors.
void GiveUpAll(holder::DescriptorStore* store, const Keepsakes& kept);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_HERITAGE_KEEPSAKES_H_
