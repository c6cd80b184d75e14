// Runs the coordinator behind a TCP port, on a thread of rank 0.
#ifndef GEMINID_COLLECTIVES_TCP_COORDINATOR_SERVER_H_
#define GEMINID_COLLECTIVES_TCP_COORDINATOR_SERVER_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "collectives/tcp/coordinator.h"
#include "collectives/tcp/frame.h"
#include "collectives/tcp/heartbeat_monitor.h"

namespace geminid::collectives {

// Unsent bytes for a rank that does not read; with more the rank counts as dead.
inline constexpr size_t kMaxBacklogBytes = 64 * 1024 * 1024;
// Connections beyond this are closed at once.
inline constexpr size_t kMaxConnections = 4096;

class CoordinatorServer {
 public:
  // Serves on `listener`, a listening socket in non-blocking mode. A rank that is silent for
  // `silence` is dead.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(base::UniqueFd listener,
                                                                  int world_size, std::string job,
                                                                  absl::Duration silence);
  // Says goodbye to the ranks and stops the thread.
  ~CoordinatorServer();

  std::vector<int> missing_ranks() const;

 private:
  struct Connection {
    base::UniqueFd socket;
    std::string address{};  // of the peer
    FrameReader reader{};
    std::string unsent{};
    bool closing = false;  // once `unsent` has been sent
  };

  CoordinatorServer(base::UniqueFd listener, base::UniqueFd stop, int world_size, std::string job,
                    absl::Duration silence);
  using Question = absl::FunctionRef<std::vector<Coordinator::Outgoing>(Coordinator&)>;
  std::vector<Coordinator::Outgoing> Ask(Question question);
  void Run();
  void Accept();
  void SendBeats();
  void RecordSilentDeaths();
  void SayGoodbye();
  void Receive(int id);
  void Deliver(const std::vector<Coordinator::Outgoing>& messages);
  void Flush(int id);
  void Drop(int id);
  void DropMarked();

  const base::UniqueFd listener_;
  const base::UniqueFd stop_;  // an eventfd
  const absl::Duration silence_;
  mutable std::mutex mutex_;
  Coordinator coordinator_;
  std::map<int, Connection> connections_;  // used by the thread
  std::vector<int> doomed_;                // used by the thread: to drop after this turn
  HeartbeatMonitor heartbeats_;            // used by the thread; by connection
  int next_id_ = 0;
  std::thread thread_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_COORDINATOR_SERVER_H_
