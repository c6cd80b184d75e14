// One attached client process, a rank of a job: its shared memory, descriptors and rings. How much
// memory it is charged for is the engine's.
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
#include "daemon/service/heritage/keepsakes.h"
#include "daemon/service/sessions/kept_plan.h"
#include "daemon/service/sessions/session_rings.h"
#include "daemon/service/sessions/token.h"
#include "daemon/service/sessions/waker.h"
#include "daemon/service/tenants/in_flight.h"
#include "proto/shm/batch_numbers.h"
#include "proto/shm/disk_use.h"
#include "proto/shm/session_layout.h"

namespace geminid::service {

// The counters a client keeps about itself, each read once. Only ever shown: they may say anything.
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

// Shared: calls in progress and the event loop keep it alive after the session has ended.
// What is marked so is guarded by the mutex of the SessionTable; the rest never changes.
class ClientSession : public Sleeper, public std::enable_shared_from_this<ClientSession> {
 public:
  // `socket` is the attach connection, `in_flight` outlives the session. Creates the segments, the
  // two events and the token. `commit`: the segment of a predecessor's, if it has one.
  static absl::StatusOr<std::shared_ptr<ClientSession>> Create(
      shm::SessionId id, uint64_t daemon_epoch, const core::SessionSpec& spec,
      const core::DeviceDescription& device, os::Peer peer, base::UniqueFd socket,
      InFlight* in_flight, base::UniqueFd commit = base::UniqueFd());
  // The same session again, for a client that need not know, of the descriptors in `kept`, which
  // has all kinds. On an error they are all there still, and RESOURCE_EXHAUSTED may pass.
  static absl::StatusOr<std::shared_ptr<ClientSession>> Adopt(const core::SessionFacts& facts,
                                                              uint64_t daemon_epoch,
                                                              const core::DeviceDescription& device,
                                                              Keepsakes::OfSession* kept,
                                                              InFlight* in_flight);
  ~ClientSession() override;

  shm::SessionId id() const { return id_; }
  const core::SessionSpec& spec() const { return spec_; }
  const core::DeviceDescription& device() const { return device_; }
  const Token& token() const { return token_; }
  // For how long there has been this client.
  int64_t AgeNanoseconds() const { return os::MonotonicNanoseconds() - opened_nanoseconds_; }
  const base::UniqueFd& socket() const { return *socket_; }
  const base::UniqueFd& pidfd() const { return peer_.pidfd; }
  // Its flags are the client's as well as ours, so it is never read or written here: watched for
  // its edges, each write of the client is one.
  const base::UniqueFd& daemon_event() const { return daemon_event_; }
  const memory::SessionSegments& segments() const { return segments_; }
  // Zero when the session is new: for core::SessionBooks.
  std::span<std::byte> books_memory() const { return {books_.data(), books_.bytes()}; }
  // All that a successor of the daemon needs, by name: to be kept from now on.
  std::vector<std::pair<std::string, int>> Keepsakes() const;

  const std::string& tenant() const override { return spec_.tenant; }
  // The client reads the end of its attach connection, although descriptors of it are still open.
  void Wake(End end) const override;

  // Sends the Welcome with its descriptors.
  absl::Status SendWelcome(uint64_t daemon_epoch) const;
  // Sends one Memory message. Both never wait: RESOURCE_EXHAUSTED when the tenant's clients, and
  // UNAVAILABLE when this one, have too much to read already.
  absl::Status SendMemory(const shm::Memory& message, const base::UniqueFd& fd) const;

  // --- under the table's mutex -------------------------------------------------------------------
  SessionRings& rings() { return rings_; }
  // It said so: it must be woken for what was put into the ring before this call.
  bool IsAsleep() const;
  // Asks the client to write the daemon's event from now on. False when a request is there already,
  // and the daemon stays awake.
  bool TryArm();
  void Disarm();

  void SetPhase(shm::Phase phase);
  ClientNumbers ReadNumbers() const;

  // Its client has gone; its memory may be retained. For good, and as the engine has it: see
  // SessionTable::Locked::Check.
  bool ended() const { return ended_; }
  void SetEnded() { ended_ = true; }

  // How many the session had before: in the names of what is kept. Not changed once it is kept.
  uint64_t which_client = 0;
  uint32_t successor = 0;  // see shm::Welcome
  std::map<shm::PoolId, memory::HostPool> pools;
  std::unique_ptr<memory::DeviceArena> arena;  // null: none
  PlanNumbers plan;
  std::shared_ptr<const KeptPlan> kept_plan;  // null: there is none, or it is too large to keep
  uint64_t kept_plan_number = 0;              // in its name
  uint64_t plans = 0;                         // the last number that was given
  uint64_t plan_bytes = 0;  // of the plan and of what is kept of it, from the tenant's share
  // -----------------------------------------------------------------------------------------------

  // Held, and taken before the table's, while the newest plan takes the older one's place in the
  // store.
  std::mutex keeping_plan;

 private:
  ClientSession(shm::SessionId id, const core::SessionSpec& spec,
                const core::DeviceDescription& device, const Token& token, os::Peer peer,
                base::UniqueFd socket, base::UniqueFd daemon_event, os::WakeUp client_event,
                memory::SessionSegments segments, base::UniqueFd books_fd, base::Mapping books,
                InFlight* in_flight);

  const shm::SessionId id_;
  const core::SessionSpec spec_;
  const core::DeviceDescription device_;
  const Token token_;
  const os::Peer peer_;
  const int64_t opened_nanoseconds_ = os::MonotonicNanoseconds();
  const InFlight::Socket socket_;
  const base::UniqueFd daemon_event_;
  const os::WakeUp client_event_;
  const memory::SessionSegments segments_;
  const base::UniqueFd books_fd_;
  const base::Mapping books_;
  InFlight* const in_flight_;
  SessionRings rings_;
  bool ended_ = false;
};

using SessionPtr = std::shared_ptr<ClientSession>;

// The session's books, before anything else is noted there.
absl::StatusOr<core::SessionBooks> MakeBooks(const ClientSession& session, core::Time opened_at);

// Tells the client in which phase its session is, and ends so much of its connection, soon.
void Tell(const SessionPtr& session, shm::Phase phase, Sleeper::End end, Waker* waker);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_CLIENT_SESSION_H_
