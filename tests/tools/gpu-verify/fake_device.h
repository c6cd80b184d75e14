// The state that processes of a fake driver share: the users of the device, and the living memory.
#ifndef GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DEVICE_H_
#define GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DEVICE_H_

#include <cstdint>

#include "tests/tools/gpu-verify/fake_driver.h"

namespace geminid::gpu_verify {

// Memory lives as long as a process holds a descriptor of its memfd. The memfd's name contains the
// memory's number, by which it is counted.
class FakeDevice {
 public:
  static void Reset(const Faults& faults);
  static const Faults& faults();

  // This process starts to use the device, or makes a context. False if the driver does not start.
  static bool Enter();
  static void AddContext();
  static bool HasContext();

  // Makes a memfd of this size.
  static int Allocate(uint64_t bytes);
  // Whether the memory of a descriptor exists. Faults that lose memory make this false.
  static bool IsAlive(int fd);
  // Stands for a device engine whose copies survive their process: starts a process that writes for
  // a while. At most once per process.
  static void CopyBeyondDeath(void* to, const void* from, uint64_t bytes);
  // Counts the memory and contexts of all processes.
  static uint64_t UsedBytes();
};

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DEVICE_H_
