// Ranks that are threads of a benchmark, over any backend of this host.
#ifndef GEMINID_TOOLS_BENCH_THREAD_RANKS_H_
#define GEMINID_TOOLS_BENCH_THREAD_RANKS_H_

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/tcp/tcp_communicator.h"
#include "collectives/tcp/socket.h"
#include "collectives/local/local_communicator.h"
#include "collectives/shm/shm_communicator.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

enum class Backend { kLocal, kShm, kTcp };

using Connecting = absl::StatusOr<std::unique_ptr<Communicator>>;

inline std::vector<std::unique_ptr<Communicator>> InThreads(
    int ranks, const std::function<Connecting(int)>& connect) {
  std::vector<std::unique_ptr<Communicator>> communicators(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto communicator = connect(r);
      if (communicator.ok()) communicators[static_cast<size_t>(r)] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return communicators;
}

inline std::vector<std::unique_ptr<Communicator>> Connect(Backend backend, int ranks) {
  if (backend == Backend::kLocal) return MakeLocalCommunicators(ranks);
  if (backend == Backend::kShm) {
    static std::atomic<int> groups{0};
    const std::string name = absl::StrCat("bench/", ::getpid(), "/", groups.fetch_add(1));
    return InThreads(ranks, [&](int r) { return ConnectShm(name, r, ranks); });
  }
  auto listener = ListenTcp("127.0.0.1", 0);
  const uint16_t port = *PortOf(listener->get());
  return InThreads(ranks, [&](int r) {
    TcpOptions options{.port = port};
    if (r == 0) options.listener = *std::move(listener);
    return ConnectTcp(r, ranks, std::move(options));
  });
}

}  // namespace geminid::collectives

#endif  // GEMINID_TOOLS_BENCH_THREAD_RANKS_H_
