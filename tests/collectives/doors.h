// How ranks in processes of their own form a group.
#ifndef GEMINID_TESTS_COLLECTIVES_DOORS_H_
#define GEMINID_TESTS_COLLECTIVES_DOORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "collectives/shm/shm_communicator.h"
#include "collectives/tcp/socket.h"
#include "collectives/tcp/tcp_communicator.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {

inline constexpr int kRanks = 4;
// The timeout of operations. No test waits this long.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// The way in which a child of one group connects. It is made in the parent, before the fork.
class Door {
 public:
  virtual ~Door() = default;
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Enter(int rank) = 0;
};

class ShmDoor final : public Door {
 public:
  absl::StatusOr<std::unique_ptr<Communicator>> Enter(int rank) override {
    return ConnectShm(name_, rank, kRanks, {.timeout = kPatience, .connect_timeout = kPatience});
  }

 private:
  const std::string name_ = UniqueName();
};

class TcpDoor final : public Door {
 public:
  TcpDoor() : listener_(*ListenTcp("127.0.0.1", 0)), port_(*PortOf(listener_.get())) {}
  absl::StatusOr<std::unique_ptr<Communicator>> Enter(int rank) override {
    TcpOptions options{.port = port_, .timeout = kPatience, .connect_timeout = kPatience};
    if (rank == 0) {
      options.listener = std::move(listener_);
    } else {
      listener_.Reset();  // or the port would stay open after rank 0 has ended
    }
    return ConnectTcp(rank, kRanks, std::move(options));
  }

 private:
  base::UniqueFd listener_;
  uint16_t port_;
};

class HostsDoor final : public Door {
 public:
  enum Naming { kTwoOfTwo, kOneOfOneAndOneOfThree, kAsTheMachineSays };
  explicit HostsDoor(Naming naming)
      : naming_(naming), listener_(*ListenTcp("127.0.0.1", 0)), port_(*PortOf(listener_.get())) {}
  absl::StatusOr<std::unique_ptr<Communicator>> Enter(int rank) override {
    HierarchicalOptions options;
    if (naming_ == kTwoOfTwo) options.host = absl::StrCat("host ", rank / 2);
    if (naming_ == kOneOfOneAndOneOfThree) options.host = rank == 0 ? "alone" : "together";
    options.network.port = port_;
    options.network.job = name_;
    options.network.timeout = kPatience;
    options.network.connect_timeout = kPatience;
    if (rank == 0) {
      options.network.listener = std::move(listener_);
    } else {
      listener_.Reset();  // or the port would stay open after rank 0 has ended
    }
    return ConnectHierarchical(rank, kRanks, std::move(options));
  }

 private:
  const Naming naming_;
  const std::string name_ = UniqueName();
  base::UniqueFd listener_;
  uint16_t port_;
};

// "shm", "hosts" (two hosts of two ranks), "uneven_hosts" (one rank and three) or "tcp".
inline std::unique_ptr<Door> MakeDoorOf(const std::string& name) {
  if (name == "shm") return std::make_unique<ShmDoor>();
  if (name == "hosts") return std::make_unique<HostsDoor>(HostsDoor::kTwoOfTwo);
  if (name == "uneven_hosts") {
    return std::make_unique<HostsDoor>(HostsDoor::kOneOfOneAndOneOfThree);
  }
  return std::make_unique<TcpDoor>();
}

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_DOORS_H_
