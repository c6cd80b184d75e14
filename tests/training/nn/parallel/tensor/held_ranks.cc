#include "tests/training/nn/parallel/tensor/held_ranks.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/communicator_backend.h"

namespace geminid::collectives {
namespace {

// For example, "column" of "mesh column/0.1/0".
std::string AxisOf(const std::string& key) {
  const size_t begin = key.find(' ') + 1;
  return key.substr(begin, key.find('/') - begin);
}

class HeldBackend final : public CommunicatorBackend {
 public:
  HeldBackend(std::unique_ptr<Communicator> inner, std::string axis, Moments* moments)
      : CommunicatorBackend(inner->Rank(), inner->WorldSize(), inner->timeout()),
        inner_(std::move(inner)),
        axis_(std::move(axis)),
        moments_(moments) {}

  const char* BackendName() const override { return inner_->BackendName(); }

  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override {
    GEMINID_RETURN_IF_ERROR(Begin(operation));
    return backend().DoAllGather(operation, in, out, parts);
  }
  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override {
    GEMINID_RETURN_IF_ERROR(Begin(operation));
    return backend().DoReduceScatter(operation, in, out, parts);
  }
  absl::Status DoAllReduce(const Operation& operation, const std::byte* in,
                           std::byte* out) override {
    GEMINID_RETURN_IF_ERROR(Begin(operation));
    return backend().DoAllReduce(operation, in, out);
  }
  absl::Status DoReduce(const Operation& operation, const std::byte* in, std::byte* out) override {
    GEMINID_RETURN_IF_ERROR(Begin(operation));
    return backend().DoReduce(operation, in, out);
  }
  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override {
    GEMINID_RETURN_IF_ERROR(Begin(operation));
    return backend().DoBroadcast(operation, inout);
  }
  absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                          std::byte* out) override {
    return backend().DoAllToAll(operation, in, out);
  }
  absl::Status DoBarrier(const Operation& operation) override {
    return backend().DoBarrier(operation);
  }
  absl::Status DoSendReceive(const Message* send, const Message* receive) override {
    return backend().DoSendReceive(send, receive);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages messages) override {
    GEMINID_ASSIGN_OR_RETURN(auto subset, backend().DoSubset(key, ranks, messages));
    return std::make_unique<Communicator>(
        std::make_unique<HeldBackend>(std::move(subset), AxisOf(key), moments_));
  }

 protected:
  void DoAbort(const absl::Status& status) override {
    inner_->Abort(std::string(status.message()));
  }

 private:
  CommunicatorBackend& backend() const { return BackendOf(*inner_); }
  absl::Status Begin(const Operation& operation) const {
    return moments_->Begin(absl::StrCat(axis_, " ", Name(operation.kind)));
  }

  const std::unique_ptr<Communicator> inner_;
  const std::string axis_;
  Moments* const moments_;
};

}  // namespace

void Moments::Restart(Holds holds) {
  const std::lock_guard lock(mutex_);
  holds_ = std::move(holds);
  begun_.clear();
}

absl::Status Moments::Begin(const std::string& what) {
  std::unique_lock lock(mutex_);
  const std::string name = absl::StrCat(what, " ", ++begun_[what]);
  changed_.notify_all();
  const auto held = holds_.find(name);
  if (held == holds_.end()) return absl::OkStatus();
  const std::string& until = held->second;
  const size_t space = until.rfind(' ');
  const std::string other = until.substr(0, space);
  const int count = std::stoi(until.substr(space + 1));
  // The limit ends tests that fail.
  if (changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_[other] >= count; })) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("\"", until, "\" did not begin while \"", name, "\" was under way"));
}

std::unique_ptr<Communicator> HoldRanks(std::unique_ptr<Communicator> ranks, Moments* moments) {
  return std::make_unique<Communicator>(
      std::make_unique<HeldBackend>(std::move(ranks), "all", moments));
}

}  // namespace geminid::collectives
