// A CUDA driver without a GPU, as the driver's table. Device memory is memfds, streams run on the
// caller's thread, and processes that a test forks share the driver. Its faults are the ways in
// which a real driver might break the probes' expectations.
#ifndef GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DRIVER_H_
#define GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DRIVER_H_

#include <cstdint>

#include "gpu/driver_api.h"

namespace geminid::gpu_verify {

struct Faults {
  bool init_fails = false;
  bool create_needs_context = false;
  bool memory_dies_with_exporter = false;
  bool memory_dies_with_last_process = false;
  bool descriptor_hangs_up = false;
  bool orphans_not_counted = false;
  bool offset_maps = false;
  bool read_only_is_writable = false;
  bool old_contents = false;
  bool word_before_data = false;
  bool copies_after_death = false;
  bool waits_pass = false;
  bool context_is_huge = false;
  bool init_takes_memory = false;
  bool slow_calls = false;  // copies, words, registrations and creations are slow
};

// The table, which is valid until the next call. Processes that are forked later use it with these
// faults. Each call begins with an unused device.
gpu::DriverApi FakeDriver(const Faults& faults = {});

inline constexpr uint64_t kFakeDeviceBytes = 8ULL << 30;
inline constexpr uint64_t kFakeContextBytes = 8ULL << 20;

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TESTS_TOOLS_GPU_VERIFY_FAKE_DRIVER_H_
