// What the processes of a fake driver share: who uses the device, and which memory is alive.
#ifndef GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DEVICE_H_
#define GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DEVICE_H_

#include <cstdint>

#include "tests/tools/gpu-verify/fake_driver.h"

namespace geminid::gpu_verify {

// Memory lives as long as any process holds a descriptor of its memfd, whose name carries its
// number; that is how it is counted.
class FakeDevice {
 public:
  static void Reset(const Faults& faults);
  static const Faults& faults();

  // This process begins to use the device, or makes a context. False if the driver does not start.
  static bool Enter();
  static void AddContext();
  static bool HasContext();

  // A new memfd of so many bytes.
  static int Allocate(uint64_t bytes);
  // Whether the memory behind a descriptor is there; the faults that lose memory say no.
  static bool IsAlive(int fd);
  // The engine of a device whose copies survive their process: a process that writes for a while.
  // Once per process.
  static void CopyBeyondDeath(void* to, const void* from, uint64_t bytes);
  // Of all processes' memory and contexts.
  static uint64_t UsedBytes();
};

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DEVICE_H_
