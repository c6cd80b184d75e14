#include "tests/client/device/faulty_device.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "absl/time/clock.h"
#include "base/unique_fd.h"

namespace geminid::device {
namespace {

// Counts the calls of the planned kind and detects the planned one.
class Trigger {
 public:
  explicit Trigger(FaultPlan plan) : plan_(std::move(plan)) {}

  bool Fires(FaultPoint point) {
    if (point != plan_.point || calls_.fetch_add(1) + 1 != plan_.nth) return false;
    if (plan_.action == FaultAction::kKill) kill(getpid(), SIGKILL);
    return true;
  }

  // For calls that return a status: fails, or runs and sleeps.
  absl::Status Call(FaultPoint point) {
    if (!Fires(point)) return absl::OkStatus();
    if (plan_.action == FaultAction::kFail) return plan_.error;
    if (plan_.action == FaultAction::kRun) plan_.run();
    absl::SleepFor(plan_.delay);
    return absl::OkStatus();
  }

  const FaultPlan& plan() const { return plan_; }

 private:
  const FaultPlan plan_;
  std::atomic<uint64_t> calls_ = 0;
};

class FaultyCopyStream final : public CopyStream {
 public:
  FaultyCopyStream(CopyStream* inner, Trigger* trigger) : inner_(inner), trigger_(trigger) {}

  void Submit(Copy copy) override {
    if (!trigger_->Fires(FaultPoint::kCopy)) {
      inner_->Submit(std::move(copy));
      return;
    }
    if (trigger_->plan().action == FaultAction::kFail) {
      // In stream order, like a real failure.
      inner_->Enqueue([on_done = std::move(copy.on_done), error = trigger_->plan().error] {
        if (on_done) on_done(error);
      });
      return;
    }
    if (trigger_->plan().action == FaultAction::kRun) inner_->Enqueue(trigger_->plan().run);
    inner_->Enqueue([delay = trigger_->plan().delay] { absl::SleepFor(delay); });
    inner_->Submit(std::move(copy));
  }

  void Enqueue(std::function<void()> work) override { inner_->Enqueue(std::move(work)); }
  std::shared_ptr<const Event> Record() override { return inner_->Record(); }
  void WaitFor(std::shared_ptr<const Event> event) override { inner_->WaitFor(std::move(event)); }

 private:
  CopyStream* inner_;
  Trigger* trigger_;
};

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> inner, const FaultPlan& plan)
      : trigger_(plan),
        inner_(std::move(inner)),
        streams_{FaultyCopyStream(&inner_->copy_stream(Direction::kHostToDevice), &trigger_),
                 FaultyCopyStream(&inner_->copy_stream(Direction::kDeviceToHost), &trigger_)} {}

  std::string name() const override { return "faulty " + inner_->name(); }

  absl::Status ReserveArena(uint64_t bytes) override {
    absl::Status fault = trigger_.Call(FaultPoint::kReserveArena);
    return fault.ok() ? inner_->ReserveArena(bytes) : fault;
  }
  absl::Status ImportSlab(base::UniqueFd slab, uint64_t offset, uint64_t bytes) override {
    absl::Status fault = trigger_.Call(FaultPoint::kImportSlab);
    return fault.ok() ? inner_->ImportSlab(std::move(slab), offset, bytes) : fault;
  }
  absl::Status RegisterHost(std::span<std::byte> memory) override {
    absl::Status fault = trigger_.Call(FaultPoint::kRegisterHost);
    return fault.ok() ? inner_->RegisterHost(memory) : fault;
  }
  void UnregisterHost(std::span<std::byte> memory) override { inner_->UnregisterHost(memory); }

  absl::Status ReleaseSlabs() override { return inner_->ReleaseSlabs(); }
  absl::Status ReserveViews(uint64_t bytes) override { return inner_->ReserveViews(bytes); }
  void ReleaseViews() override { inner_->ReleaseViews(); }
  std::byte* views() const override { return inner_->views(); }
  absl::Status MapView(uint64_t at, uint64_t offset, uint64_t bytes) override {
    return inner_->MapView(at, offset, bytes);
  }
  absl::Status UnmapView(uint64_t at, uint64_t bytes) override {
    return inner_->UnmapView(at, bytes);
  }
  absl::Status FillView(uint64_t at, uint64_t bytes) override {
    return inner_->FillView(at, bytes);
  }

  std::byte* base() const override { return inner_->base(); }
  MemoryInfo memory_info() const override { return inner_->memory_info(); }
  HostRegistration host_registration() const override { return inner_->host_registration(); }
  std::byte* HostAddress(std::byte* address) const override { return inner_->HostAddress(address); }
  CopyStream& copy_stream(Direction direction) override {
    return streams_[static_cast<int>(direction)];
  }
  Stream& compute_stream() override { return inner_->compute_stream(); }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name) override {
    return inner_->MakeStream(name);
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStreamOfCaller(const std::string& name) override {
    return inner_->MakeStreamOfCaller(name);
  }
  absl::StatusOr<Stream*> StreamOf(StreamHandle handle) override {
    return inner_->StreamOf(handle);
  }
  std::shared_ptr<Gate> MakeGate() override { return inner_->MakeGate(); }
  DeviceOps& ops() override { return inner_->ops(); }

 private:
  Trigger trigger_;
  std::unique_ptr<Device> inner_;
  std::array<FaultyCopyStream, kDirections> streams_;
};

}  // namespace

std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> inner, const FaultPlan& plan) {
  return std::make_unique<FaultyDevice>(std::move(inner), plan);
}

}  // namespace geminid::device
