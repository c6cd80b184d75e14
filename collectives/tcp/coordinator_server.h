// The coordinator behind a TCP port, on a thread of rank 0.
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
#include "collectives/tcp/beats.h"
#include "collectives/tcp/coordinator.h"
#include "collectives/tcp/frame.h"

namespace geminid::collectives {

// Bytes that wait for one rank that does not read; beyond it the rank counts as dead.
inline constexpr size_t kMaxBacklogBytes = 64 * 1024 * 1024;
// Further connections are closed at once.
inline constexpr size_t kMaxConnections = 4096;

class CoordinatorServer {
 public:
  // Serves on `listener`, a listening socket in non-blocking mode. Who is silent for `silence` is
  // dead.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(base::UniqueFd listener,
                                                                  int world_size, std::string job,
                                                                  absl::Duration silence);
  // Says goodbye to the ranks and stops the thread.
  ~CoordinatorServer();

  std::vector<int> missing_ranks() const;

 private:
  struct Connection {
    base::UniqueFd socket;
    std::string address{};  // of the other end
    FrameReader reader{};
    std::string unsent{};
    bool closing = false;  // when `unsent` is out
  };

  CoordinatorServer(base::UniqueFd listener, base::UniqueFd stop, int world_size, std::string job,
                    absl::Duration silence);
  using Question = absl::FunctionRef<std::vector<Coordinator::Outgoing>(Coordinator&)>;
  std::vector<Coordinator::Outgoing> Ask(Question question);
  void Run();
  void Accept();
  void SendBeats();
  void BurySilent();
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
  std::map<int, Connection> connections_;  // of the thread
  std::vector<int> doomed_;                // of the thread: to be dropped after this turn
  Beats beats_;                            // of the thread, by connection
  int next_id_ = 0;
  std::thread thread_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_COORDINATOR_SERVER_H_
