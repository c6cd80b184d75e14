// The names of a daemon's descriptors in the descriptor store, for the next daemon.
//
//   manifest                        the records of all chunks
//   node                            the node's capacities, see node_record.h
//   s7-books, s7-state, ...         of session 7 and its first client: see the kinds below
//   s7-books.2, s7-state.2, ...     of its third client; but all clients share s7-commit
//   s7-pool12, s7-slab0             its pools by id, and the slabs of its arena in order
//   s7-plan3, s7-plan3.2            the third plan of its first client, and of its third client
//
// A name is used once, because not every store replaces an entry. The next client's descriptors are
// added beside the previous client's, the books last; only then are the old ones removed. So at any
// instant one of the two sets is complete.
#ifndef GEMINID_DAEMON_SERVICE_HERITAGE_INHERITED_DESCRIPTORS_H_
#define GEMINID_DAEMON_SERVICE_HERITAGE_INHERITED_DESCRIPTORS_H_

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

// `which_client`: how many clients the session had before this one.
std::string DescriptorName(shm::SessionId session, const std::string& what,
                           uint64_t which_client = 0);
std::string PoolName(shm::SessionId session, shm::PoolId pool);
std::string SlabName(shm::SessionId session, uint32_t slab);
// `number`: counts the plans of that client.
std::string PlanName(shm::SessionId session, uint64_t number, uint64_t which_client);

// The descriptors that an earlier daemon left, sorted.
struct InheritedDescriptors {
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
  // Closed here: of earlier clients, incomplete sets, and names unknown to this release.
  std::vector<std::string> needless;
};

InheritedDescriptors Sort(std::vector<holder::StoredDescriptor> kept);

// Ends the session for its client: takes its memory back, closes its connection, and removes all
// its names from the store.
void GiveUp(holder::DescriptorStore* store, const InheritedDescriptors::OfSession& kept);
// Gives up every session, and removes the node's own descriptors.
void GiveUpAll(holder::DescriptorStore* store, const InheritedDescriptors& kept);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_HERITAGE_INHERITED_DESCRIPTORS_H_
