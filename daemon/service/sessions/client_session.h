// One attached client process, a rank of a job: its shared memory, descriptors and rings. The
// engine knows how much memory it is charged for.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_CLIENT_SESSION_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_CLIENT_SESSION_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/memory/device_arena.h"
#include "daemon/memory/host_pool.h"
#include "daemon/memory/session_segments.h"
#include "daemon/os/event.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/heritage/inherited_descriptors.h"
#include "daemon/service/sessions/session_rings.h"
#include "daemon/service/sessions/stored_plan.h"
#include "daemon/service/sessions/token.h"
#include "daemon/service/sessions/waker.h"
#include "daemon/service/tenants/descriptors_in_flight.h"
#include "proto/shm/batch_numbers.h"
#include "proto/shm/disk_use.h"
#include "proto/shm/session_layout.h"

namespace geminid::service {

// A client's counters about itself, each read once. They may have any value: only display them.
struct ClientNumbers {
  std::array<uint64_t, shm::kStallCauses> stall_nanoseconds{};
  uint64_t queued_nanoseconds = 0;
  uint64_t step = 0;
  uint64_t moment = 0;
  shm::DiskUse disk{};
  shm::BatchNumbers batch{};
};

struct PlanNumbers {
  uint64_t transfer_bytes = 0;
  uint64_t transfer_bytes_lower_bound = 0;
};

// Shared: calls in progress and the event loop keep it alive after the session has ended. The mutex
// of the SessionTable guards the members in the section below; the others never change.
class ClientSession : public SleepingClient, public std::enable_shared_from_this<ClientSession> {
 public:
  // `socket` is the attach connection, `in_flight` outlives the session. Creates segments, both
  // events and the token. `commit`: the commit segment of the previous client, if there was one.
  static absl::StatusOr<std::shared_ptr<ClientSession>> Create(
      shm::SessionId id, uint64_t daemon_epoch, const core::SessionSpec& spec,
      const core::DeviceDescription& device, os::Peer peer, base::UniqueFd socket,
      DescriptorsInFlight* in_flight, base::UniqueFd commit = base::UniqueFd());
  // Rebuilds an earlier daemon's session from the descriptors in `kept`, which has all kinds; its
  // client need not notice. On an error `kept` still has them all. RESOURCE_EXHAUSTED may pass.
  static absl::StatusOr<std::shared_ptr<ClientSession>> Adopt(const core::SessionFacts& facts,
                                                              uint64_t daemon_epoch,
                                                              const core::DeviceDescription& device,
                                                              InheritedDescriptors::OfSession* kept,
                                                              DescriptorsInFlight* in_flight);
  ~ClientSession() override;

  shm::SessionId id() const { return id_; }
  const core::SessionSpec& spec() const { return spec_; }
  const core::DeviceDescription& device() const { return device_; }
  const Token& token() const { return token_; }
  // How long this client has been attached.
  int64_t AgeNanoseconds() const { return os::MonotonicNanoseconds() - opened_nanoseconds_; }
  const base::UniqueFd& socket() const { return *socket_; }
  const base::UniqueFd& pidfd() const { return peer_.pidfd; }
  pid_t pid() const { return peer_.pid; }
  // The client shares the flags of its file description, so the daemon never reads or writes it.
  // The daemon watches it for edges: each write of the client is one.
  const base::UniqueFd& daemon_event() const { return daemon_event_; }
  const memory::SessionSegments& segments() const { return segments_; }
  // For core::SessionBooks. Zero when the session is new.
  std::span<std::byte> books_memory() const { return {books_.data(), books_.bytes()}; }
  // All descriptors that the next daemon needs, by their names in the store.
  std::vector<std::pair<std::string, int>> DescriptorsToStore() const;

  const std::string& tenant() const override { return spec_.tenant; }
  // Wakes the client, and ends its attach connection as `end` says, even if others have it open.
  void Wake(End end) const override;

  // Sends the Welcome with its descriptors.
  absl::Status SendWelcome(uint64_t daemon_epoch) const;
  // Sends one Memory message. Neither function waits. RESOURCE_EXHAUSTED: the tenant's clients have
  // too much to read already. UNAVAILABLE: this client has.
  absl::Status SendMemory(const shm::Memory& message, const base::UniqueFd& fd) const;

  // --- under the table's mutex -------------------------------------------------------------------
  SessionRings& rings() { return rings_; }
  // Whether the client says that it sleeps: then wake it for responses put into the ring before.
  bool IsAsleep() const;
  // Asks the client to write the daemon's event from now on. False when a request is there already,
  // and the daemon stays awake.
  bool TryArm();
  void Disarm();

  void SetPhase(shm::Phase phase);
  ClientNumbers ReadNumbers() const;

  // Its client has gone; its memory may be retained. Never becomes false again, and agrees with the
  // engine: see SessionTable::Locked::Check.
  bool ended() const { return ended_; }
  void SetEnded() { ended_ = true; }

  // How many clients the session had before: part of its names in the store. Fixed once stored.
  uint64_t which_client = 0;
  uint32_t successor = 0;  // see shm::Welcome
  std::map<shm::PoolId, memory::HostPool> pools;
  std::unique_ptr<memory::DeviceArena> arena;  // null: none
  PlanNumbers plan;
  std::shared_ptr<const StoredPlan>
      stored_plan;                            // null: there is none, or it is too large to store
  uint64_t stored_plan_number = 0;            // in its name
  uint64_t plans = 0;                         // the last number that was given
  uint64_t plan_bytes = 0;  // of the plan and of its stored copy, from the tenant's share
  // -----------------------------------------------------------------------------------------------

  // Held while the newest plan replaces the older one in the store. Taken before the table's
  // mutex.
  std::mutex keeping_plan;

 private:
  ClientSession(shm::SessionId id, const core::SessionSpec& spec,
                const core::DeviceDescription& device, const Token& token, os::Peer peer,
                base::UniqueFd socket, base::UniqueFd daemon_event, os::WakeUp client_event,
                memory::SessionSegments segments, base::UniqueFd books_fd, base::Mapping books,
                DescriptorsInFlight* in_flight);

  const shm::SessionId id_;
  const core::SessionSpec spec_;
  const core::DeviceDescription device_;
  const Token token_;
  const os::Peer peer_;
  const int64_t opened_nanoseconds_ = os::MonotonicNanoseconds();
  const DescriptorsInFlight::Socket socket_;
  const base::UniqueFd daemon_event_;
  const os::WakeUp client_event_;
  const memory::SessionSegments segments_;
  const base::UniqueFd books_fd_;
  const base::Mapping books_;
  DescriptorsInFlight* const in_flight_;
  SessionRings rings_;
  bool ended_ = false;
};

using SessionPtr = std::shared_ptr<ClientSession>;

// Begins the session's books; to be called before anything else is written there.
absl::StatusOr<core::SessionBooks> MakeBooks(const ClientSession& session, core::Time opened_at);

// Tells the client its session's phase, and soon ends its connection as `end` says.
void Tell(const SessionPtr& session, shm::Phase phase, SleepingClient::End end, Waker* waker);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_CLIENT_SESSION_H_
