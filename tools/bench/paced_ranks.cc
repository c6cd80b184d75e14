#include "tools/bench/paced_ranks.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/communicator_backend.h"

namespace geminid::collectives {
namespace {

using Ticks = LinkTime::duration;

// Before each message it sends another one, with the arrival time of the message.
class PacedBackend final : public CommunicatorBackend {
 public:
  PacedBackend(std::unique_ptr<Communicator> inner, const LinkSpeed& speed, LinkClock clock)
      : CommunicatorBackend(inner->Rank(), inner->WorldSize(), inner->timeout()),
        inner_(std::move(inner)),
        speed_(speed),
        clock_(std::move(clock)) {}

  const char* BackendName() const override { return inner_->BackendName(); }

 protected:
  absl::Status DoSendReceive(const Message* send, const Message* receive) override {
    if (send != nullptr && receive != nullptr) return Refuse("SendReceive");
    return Poison(send != nullptr ? DoSend(*send) : DoReceive(*receive));
  }

  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages messages) override {
    auto subset = BackendOf(*inner_).DoSubset(key, ranks, messages);
    if (!subset.ok()) return Poison(subset.status());
    return PaceRanks(*std::move(subset), speed_, clock_);
  }

  absl::Status DoAllGather(const Operation&, const std::byte*, std::byte*,
                           const Partition&) override {
    return Refuse("AllGather");
  }
  absl::Status DoReduceScatter(const Operation&, const std::byte*, std::byte*,
                               const Partition&) override {
    return Refuse("ReduceScatter");
  }
  absl::Status DoBroadcast(const Operation&, std::byte*) override { return Refuse("Broadcast"); }
  absl::Status DoAllToAll(const Operation&, const std::byte*, std::byte*) override {
    return Refuse("AllToAll");
  }
  // A barrier carries no bytes, so the links do not slow it down.
  absl::Status DoBarrier(const Operation&) override { return Poison(inner_->Barrier()); }
  void DoAbort(const absl::Status& status) override {
    inner_->Abort(std::string(status.message()));
  }
  absl::Status DoCheckHealth() const override { return inner_->health(); }

 private:
  static absl::Status Refuse(const char* operation) {
    return absl::UnimplementedError(
        absl::StrCat(operation, ": paced ranks only send, receive and meet at barriers"));
  }

  absl::Status DoSend(const Message& send) {
    Link& link = links_.try_emplace(send.peer, speed_).first->second;
    const LinkTime arrival = link.Carry(clock_.now(), send.bytes());
    const std::array<int64_t, 1> ticks = {arrival.time_since_epoch().count()};
    const Operation& operation = send.operation;
    GEMINID_RETURN_IF_ERROR(inner_->Send(ticks, send.peer, operation.root_or_tag));
    return inner_->Send(ConstBuffer(send.in, operation.count, operation.dtype), send.peer,
                        operation.root_or_tag);
  }

  absl::Status DoReceive(const Message& receive) {
    std::array<int64_t, 1> ticks = {};
    const Operation& operation = receive.operation;
    GEMINID_RETURN_IF_ERROR(inner_->Receive(ticks, receive.peer, operation.root_or_tag));
    GEMINID_RETURN_IF_ERROR(inner_->Receive(Buffer(receive.out, operation.count, operation.dtype),
                                            receive.peer, operation.root_or_tag));
    clock_.wait_until(LinkTime(Ticks(ticks[0])));
    return absl::OkStatus();
  }

  const std::unique_ptr<Communicator> inner_;
  const LinkSpeed speed_;
  const LinkClock clock_;
  std::map<int, Link> links_;  // by the rank that they lead to
};

}  // namespace

LinkTime Link::Carry(LinkTime now, size_t bytes) {
  const auto of = [](LinkSeconds seconds) { return std::chrono::duration_cast<Ticks>(seconds); };
  free_ = std::max(now, free_) + of(speed_.per_byte * static_cast<double>(bytes));
  return free_ + of(speed_.latency);
}

LinkClock SteadyLinkClock() {
  return {.now = [] { return std::chrono::steady_clock::now(); },
          .wait_until = [](LinkTime time) { std::this_thread::sleep_until(time); }};
}

std::unique_ptr<Communicator> PaceRanks(std::unique_ptr<Communicator> ranks, const LinkSpeed& speed,
                                        LinkClock clock) {
  return std::make_unique<Communicator>(
      std::make_unique<PacedBackend>(std::move(ranks), speed, std::move(clock)));
}

}  // namespace geminid::collectives
