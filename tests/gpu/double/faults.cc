#include "tests/gpu/double/faults.h"

#include <chrono>
#include <string_view>
#include <thread>

#include "tests/gpu/double/functions.h"
#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {
namespace {

// Whether `skips` calls have passed and some of `times` are left; counts this call.
bool IsHit(Fault* fault) {
  if (fault->skips > 0) {
    --fault->skips;
    return false;
  }
  if (--fault->times <= 0) fault->kind = FaultKind::kNone;
  return true;
}

}  // namespace

int CountCall(int function) {
  ++ThisNode().calls[function];
  const std::string_view name = kFunctionNames[function];
  for (Fault& fault : ThisNode().fault) {
    if (fault.kind == FaultKind::kNone || name != fault.function) continue;
    while (fault.kind == FaultKind::kHang) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const int result = fault.result;
    if (fault.kind == FaultKind::kFail && IsHit(&fault)) return result;
  }
  return 0;
}

}  // namespace geminid::gpu_double
