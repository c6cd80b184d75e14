#include "training/ranks/engine_source.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

// The engine's workspace, at the addresses where the host finds it.
class HostWorkspace final : public zero::Workspace {
 public:
  HostWorkspace(zero::Workspace* inner, const Session* session)
      : inner_(inner), session_(session) {}

  absl::StatusOr<Block> Allocate(uint64_t bytes) override {
    GEMINID_ASSIGN_OR_RETURN(Block block, inner_->Allocate(bytes));
    std::byte* const there = session_->HostAddress(block.data());
    const uint64_t size = block.bytes();
    const std::lock_guard lock(mutex_);
    blocks_[there] = std::move(block);
    return MakeBlock(there, size);
  }

 protected:
  void Free(std::byte* data, uint64_t /*bytes*/) override {
    const std::lock_guard lock(mutex_);
    blocks_.erase(data);
  }

 private:
  zero::Workspace* const inner_;
  const Session* const session_;
  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
};

// Addresses are the host's in the arena of `session`; null: the device's.
class EngineUse final : public ParameterUse {
 public:
  EngineUse(zero::Operation operation, const Session* session)
      : operation_(std::move(operation)), session_(session) {}

  const std::byte* Weight(zero::ParameterId id) const override {
    return AddressOf(operation_.Weight(id));
  }
  std::byte* Gradient(zero::ParameterId id) override { return AddressOf(operation_.Gradient(id)); }
  bool GradientAccumulates(zero::ParameterId id) const override {
    return operation_.GradientAccumulates(id);
  }
  absl::Status GradientWritten(zero::ParameterId id) override {
    return operation_.GradientWritten(id);
  }
  absl::Status Finish() override { return operation_.Finish(); }

 private:
  template <typename Byte>
  Byte* AddressOf(Byte* address) const {
    return session_ == nullptr ? address : session_->HostAddress(address);
  }

  zero::Operation operation_;
  const Session* const session_;
};

class EngineSource final : public ParameterSource {
 public:
  EngineSource(zero::Engine* engine, const Session* session)
      : engine_(engine), session_(session), workspace_(&engine->workspace(), session) {}

  absl::Status BeginMicroBatch() override { return engine_->BeginMicroBatch(); }
  absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      zero::Pass pass, std::span<const zero::ParameterId> parameters) override {
    GEMINID_ASSIGN_OR_RETURN(zero::Operation operation, engine_->Use(pass, parameters));
    return std::make_unique<EngineUse>(std::move(operation), session_);
  }
  zero::Workspace& workspace() override {
    const bool same = session_->HostAddress(session_->arena()) == session_->arena();
    return same ? engine_->workspace() : workspace_;
  }

 private:
  zero::Engine* const engine_;
  const Session* const session_;
  HostWorkspace workspace_;
};

// On a stream of the device, at the device's addresses.
class StreamSource final : public ParameterSource {
 public:
  StreamSource(zero::Engine* engine, StreamHandle stream) : engine_(engine), stream_(stream) {}

  absl::Status BeginMicroBatch() override { return engine_->BeginMicroBatch(); }
  absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      zero::Pass pass, std::span<const zero::ParameterId> parameters) override {
    GEMINID_ASSIGN_OR_RETURN(zero::Operation operation, engine_->Use(pass, parameters, stream_));
    return std::make_unique<EngineUse>(std::move(operation), /*session=*/nullptr);
  }
  zero::Workspace& workspace() override { return engine_->workspace(); }

 private:
  zero::Engine* const engine_;
  const StreamHandle stream_;
};

class SourceStack final : public zero::ActivationStack {
 public:
  SourceStack(zero::ActivationStack* inner, const Session* session)
      : inner_(*inner), session_(session) {}

  absl::Status Begin() override { return inner_.Begin(); }
  absl::StatusOr<std::byte*> Push() override { return AddressOf(inner_.Push()); }
  absl::Status Written(uint32_t item) override { return inner_.Written(item); }
  absl::StatusOr<std::byte*> Top() override { return AddressOf(inner_.Top()); }
  absl::Status Pop() override { return inner_.Pop(); }

 private:
  absl::StatusOr<std::byte*> AddressOf(absl::StatusOr<std::byte*> place) const {
    if (!place.ok() || session_ == nullptr) return place;
    return session_->HostAddress(*place);
  }

  zero::ActivationStack& inner_;
  const Session* const session_;
};

}  // namespace

std::unique_ptr<zero::ActivationStack> MakeSourceStack(zero::ActivationStack* stack,
                                                       const Session* session) {
  return std::make_unique<SourceStack>(stack, session);
}

std::unique_ptr<ParameterSource> MakeStreamSource(zero::Engine* engine, StreamHandle stream) {
  return std::make_unique<StreamSource>(engine, stream);
}

std::unique_ptr<ParameterSource> MakeEngineSource(zero::Engine* engine, const Session* session) {
  return std::make_unique<EngineSource>(engine, session);
}

}  // namespace geminid::trainer
