// A device whose copies go on only when the world says so, in pieces.
#ifndef GEMINID_TESTS_SIMULATION_SIMULATED_DEVICE_H_
#define GEMINID_TESTS_SIMULATION_SIMULATED_DEVICE_H_

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "client/device/device.h"

namespace geminid::simulation {

class SimulatedLink final : public device::CopyStream {
 public:
  // `flips_early`: it says that a copy is done, and then does it. A mutant.
  explicit SimulatedLink(bool flips_early) : flips_early_(flips_early) {}

  void Submit(device::Copy copy) override { copies_.push_back({std::move(copy), 0}); }
  bool idle() const { return copies_.empty(); }

  // One of the four steps that its oldest copy takes.
  void Step() {
    if (copies_.empty()) return;
    const int step = (copies_.front().step++ + (flips_early_ ? 2 : 0)) % kSteps;
    device::Copy& copy = copies_.front().copy;
    const uint64_t half = copy.bytes / 2;
    std::function<void(const absl::Status&)> on_done;
    switch (step) {
      case 0:
        std::memcpy(copy.destination, copy.source, half);
        break;
      case 1:
        std::memcpy(copy.destination + half, copy.source + half, copy.bytes - half);
        break;
      case 2:
        copy.completion->store(copy.completion_value, std::memory_order_release);
        break;
      default:
        on_done = std::move(copy.on_done);
    }
    if (copies_.front().step == kSteps) copies_.pop_front();
    if (on_done) on_done(absl::OkStatus());
  }

  void Enqueue(std::function<void()>) override { std::abort(); }
  std::shared_ptr<const Event> Record() override { std::abort(); }
  void WaitFor(std::shared_ptr<const Event>) override { std::abort(); }

 private:
  static constexpr int kSteps = 4;
  struct UnderWay {
    device::Copy copy;
    int step = 0;
  };
  const bool flips_early_;
  std::deque<UnderWay> copies_;
};

// An arena, and a link each way. What the client's protocol does not use is not there.
class SimulatedDevice final : public device::Device {
 public:
  SimulatedDevice(std::byte* arena, uint64_t bytes, bool flips_early)
      : arena_(arena),
        bytes_(bytes),
        links_{SimulatedLink(flips_early), SimulatedLink(flips_early)} {}

  SimulatedLink& link(device::Direction direction) {
    return links_[static_cast<size_t>(direction)];
  }

  std::string name() const override { return "simulated"; }
  std::byte* base() const override { return arena_; }
  device::MemoryInfo memory_info() const override { return {bytes_, bytes_}; }
  std::byte* HostAddress(std::byte* address) const override { return address; }
  device::CopyStream& copy_stream(device::Direction direction) override { return link(direction); }

  absl::Status ReserveArena(uint64_t) override { return NotThere(); }
  absl::Status ImportSlab(base::UniqueFd, uint64_t, uint64_t) override { return NotThere(); }
  absl::Status ReleaseSlabs() override { return NotThere(); }
  absl::Status ReserveViews(uint64_t) override { return NotThere(); }
  void ReleaseViews() override {}
  std::byte* views() const override { return nullptr; }
  absl::Status MapView(uint64_t, uint64_t, uint64_t) override { return NotThere(); }
  absl::Status UnmapView(uint64_t, uint64_t) override { return NotThere(); }
  absl::Status FillView(uint64_t, uint64_t) override { return NotThere(); }
  absl::Status RegisterHost(std::span<std::byte>) override { return NotThere(); }
  void UnregisterHost(std::span<std::byte>) override {}
  Stream& compute_stream() override { std::abort(); }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string&) override {
    return NotThere();
  }
  absl::StatusOr<Stream*> StreamOf(StreamHandle) override { return NotThere(); }
  std::shared_ptr<device::Gate> MakeGate() override { std::abort(); }
  device::DeviceOps& ops() override { std::abort(); }

 private:
  static absl::Status NotThere() { return absl::UnimplementedError("not simulated"); }

  std::byte* const arena_;
  const uint64_t bytes_;
  std::array<SimulatedLink, device::kDirections> links_;
};

}  // namespace geminid::simulation

#endif  // GEMINID_TESTS_SIMULATION_SIMULATED_DEVICE_H_
