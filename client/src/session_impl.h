// The parts of a Session.
#ifndef GEMINID_CLIENT_SRC_SESSION_IMPL_H_
#define GEMINID_CLIENT_SRC_SESSION_IMPL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/device/device.h"
#include "client/src/attach.h"
#include "client/src/chunk_table.h"
#include "client/src/control.h"
#include "client/src/fork_guard.h"
#include "client/src/on_demand_loader.h"
#include "client/src/request_port.h"
#include "client/src/segments.h"
#include "client/src/transfers.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"

namespace geminid {

class SessionImpl {
 public:
  SessionImpl(ConnectOptions connect_options, std::unique_ptr<device::Device> session_device)
      : options(std::move(connect_options)), device(std::move(session_device)) {}

  static std::unique_ptr<Session> MakeSession(std::unique_ptr<SessionImpl> impl);
  static SessionImpl& Of(const Session& session);

  // All of Connect; blocks. `met_before`: the daemon is known to have been there.
  absl::Status Open(bool met_before);
  // Open failed because the session was lost. The daemon ended before it had recorded the session,
  // and the next one discarded it; or no descriptor store had it. The caller may connect again.
  bool IsForgotten() const;
  // Must be called before destruction, however far Open got. See ~Session.
  void Close();

  // FAILED_PRECONDITION in a forked child, which may touch nothing.
  absl::Status CheckUsable() const;
  // Sends a request with one answer. The message of a failure begins with `doing`.
  Pending Ask(const shm::Request& request, std::string doing);
  // The number of leases on the chunk.
  uint32_t Holds(ChunkId chunk) const;
  void ReleaseDirtyHold(ChunkId chunk);

  // Asks once whether the job is admitted; if not, calls on_wait. Needs options.admission.
  absl::StatusOr<Control::AdmissionStatus> AskAdmission() const;
  // Calls on_wait; an error ends the wait.
  absl::Status TellWait(const Control::AdmissionStatus& standing) const;
  void AddQueued(absl::Duration waited);  // adds time spent waiting for admission
  // Called at the start, and again after the slabs were released.
  absl::Status MakeArena();
  // Session::Allocate; `claim`: takes over an allocation of an earlier process.
  absl::StatusOr<std::vector<ChunkHandle>> Obtain(const std::vector<ChunkSpec>& specs, bool claim);

  const ConnectOptions options;
  std::shared_ptr<PrivateDaemon> private_daemon;
  std::string socket;
  uint64_t session_id = 0;
  uint32_t successor = 0;             // how many processes had the session before
  std::atomic<bool> is_left = false;  // to a replacement rank
  DeviceDescription device_description;
  AttachSocket attach;
  std::optional<ForkGuard> fork_guard;
  Segments segments;
  std::unique_ptr<Control> control;
  std::mutex memory_mutex;  // one Allocate or Free at a time; guards the attach socket
  ChunkTable chunks;
  std::unique_ptr<device::Device> device;  // destroyed before the memory that it copies from and to
  std::unique_ptr<RequestPort> port;
  std::unique_ptr<Transfers> transfers;
  std::unique_ptr<OnDemandLoader> on_demand_loader;  // created by Session
  std::byte* arena = nullptr;
  uint64_t arena_bytes = 0;
  std::atomic<bool> arena_claimed = false;
  std::vector<std::function<void()>> at_detach;

 private:
  absl::Status ResolveSocket();
  absl::Status Attach(bool met_before);
  absl::StatusOr<ReceivedWelcome> MeetDaemon(const shm::Hello& hello, bool met_before);
  // `began`: when the session began to wait for its memory.
  absl::Status AwaitAdmission(absl::Time began);
  absl::Status AwaitArena();
  std::string Describe(const Control::AdmissionStatus& standing) const;
};

// For tests and for the library's own layers: a session on the given device.
absl::StatusOr<std::unique_ptr<Session>> ConnectWithDevice(ConnectOptions options,
                                                           std::unique_ptr<device::Device> device);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_SESSION_IMPL_H_
