// A device that misbehaves at a chosen call: for tests of what is built on devices.
#ifndef GEMINID_CLIENT_DEVICE_FAULTY_FAULTY_DEVICE_H_
#define GEMINID_CLIENT_DEVICE_FAULTY_FAULTY_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/device/device.h"

namespace geminid::device {

enum class FaultAction {
  kFail,   // the call, or the copy, fails with `error` and does nothing
  kDelay,  // it is carried out `delay` later; what follows in its stream waits
  kKill,   // SIGKILL to this process
  kRun,    // `run` is called, and then it is carried out
};

// Which operations are counted. One counter per kind.
enum class FaultPoint { kNone, kReserveArena, kImportSlab, kRegisterHost, kCopy };

struct FaultPlan {
  FaultPoint point = FaultPoint::kNone;
  uint64_t nth = 1;  // from 1; in both directions together for copies
  FaultAction action = FaultAction::kFail;
  absl::Status error = absl::InternalError("injected device fault");
  absl::Duration delay = absl::ZeroDuration();
  std::function<void()> run = [] {};
};

// Passes everything on to `inner` but for the one call the plan names.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> inner, const FaultPlan& plan);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_FAULTY_FAULTY_DEVICE_H_
