#include "tests/collectives/world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collectives/local/local_communicator.h"
#include "collectives/shm/shm_communicator.h"

namespace geminid::collectives {

uint64_t ReceivedFromAll(const std::vector<PeerTraffic>& peers) {
  uint64_t bytes = 0;
  for (const PeerTraffic& peer : peers) bytes += peer.bytes_received;
  return bytes;
}

bool WithTimeForAll(const std::function<bool(absl::Duration timeout)>& attempt) {
  constexpr absl::Duration kShortest = absl::Milliseconds(200);
  constexpr absl::Duration kLongest = absl::Seconds(20);
  for (absl::Duration timeout = kShortest; timeout < kLongest; timeout *= 4) {
    if (attempt(timeout)) return true;
  }
  return attempt(kLongest);
}

std::string UniqueName() {
  static std::atomic<int> count{0};
  return absl::StrCat("test/", ::getpid(), "/", count.fetch_add(1));
}

Communicators ConnectInThreads(
    int world_size,
    const std::function<absl::StatusOr<std::unique_ptr<Communicator>>(int rank)>& connect) {
  Communicators communicators(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto communicator = connect(rank);
      EXPECT_TRUE(communicator.ok()) << communicator.status();
      if (communicator.ok()) communicators[static_cast<size_t>(rank)] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return communicators;
}

void ForEachRank(Communicators& communicators, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    if (communicator == nullptr) continue;
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  }
  for (std::thread& thread : threads) thread.join();
}

Backend LocalBackend() {
  return {"local", [](int world_size, absl::Duration timeout) {
            return MakeLocalCommunicators(world_size, timeout);
          }};
}

namespace {

Backend MakeShmBackend(const char* backend_name, uint32_t piece_bytes, uint32_t slots) {
  return {backend_name, [=](int world_size, absl::Duration timeout) {
            const std::string name = UniqueName();
            return ConnectInThreads(world_size, [&](int rank) {
              return ConnectShm(name, rank, world_size,
                                {.timeout = timeout, .piece_bytes = piece_bytes, .slots = slots});
            });
          }};
}

}  // namespace

Backend ShmBackend() { return MakeShmBackend("shm", 256 * 1024, 4); }
Backend ShmSmallPiecesBackend() { return MakeShmBackend("shm_small_pieces", 4096, 2); }

}  // namespace geminid::collectives
