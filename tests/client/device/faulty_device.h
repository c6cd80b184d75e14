// A device that fails at a chosen call, to test the code that uses devices.
#ifndef GEMINID_TESTS_CLIENT_DEVICE_FAULTY_DEVICE_H_
#define GEMINID_TESTS_CLIENT_DEVICE_FAULTY_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/device/device.h"

namespace geminid::device {

enum class FaultAction {
  kFail,   // the call or the copy fails with `error` and has no effect
  kDelay,  // executed `delay` later; later work of its stream waits
  kKill,   // sends SIGKILL to this process
  kRun,    // calls `run`, then executes the call
};

// The kind of operation to count. One counter per kind.
enum class FaultPoint { kNone, kReserveArena, kImportSlab, kRegisterHost, kCopy };

struct FaultPlan {
  FaultPoint point = FaultPoint::kNone;
  uint64_t nth = 1;  // from 1 on; counts copies of both directions together
  FaultAction action = FaultAction::kFail;
  absl::Status error = absl::InternalError("injected device fault");
  absl::Duration delay = absl::ZeroDuration();
  std::function<void()> run = [] {};
};

// Forwards every call to `inner`, except the call that the plan names.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> inner, const FaultPlan& plan);

}  // namespace geminid::device

#endif  // GEMINID_TESTS_CLIENT_DEVICE_FAULTY_DEVICE_H_
