// The questions, each with a function that answers it, and the list of all.
//
// A probe runs in a process of its own that has not initialised the driver (see isolate.h). It may
// throw: a ProbeError makes the outcome "fail", with the error's text as the reason.
#ifndef GEMINID_TOOLS_GPU_VERIFY_PROBE_H_
#define GEMINID_TOOLS_GPU_VERIFY_PROBE_H_

#include <cstdint>
#include <vector>

#include "gpu/driver_api.h"
#include "tools/gpu-verify/isolate.h"
#include "tools/gpu-verify/outcome.h"

namespace geminid::gpu_verify {

inline constexpr uint64_t kMib = 1 << 20;
inline constexpr uint64_t kGib = 1 << 30;

// The amount of work of a probe.
struct Effort {
  uint64_t slab_bytes = 256 * kMib;
  std::vector<uint64_t> slab_sizes = {64 * kMib, 256 * kMib, kGib, 4 * kGib};
  uint64_t pattern_bytes = 64 * kMib;  // per kill of G2
  uint64_t chunk_bytes = 32 * kMib;    // one copy of a training run
  int kills = 200;                     // G2
  int dma_kills = 1000;                // G20
  uint64_t dma_bytes = 64 * kMib;      // one copy of G20
  int dma_queue = 192;                 // copies queued: a quarter of a second on a 50 GB/s link
  int lanes = 4;                       // processes started and killed together
  uint64_t words = 1'000'000;          // G16
  int calls = 1000;                    // G18
  double window_seconds = 1;           // of a measurement of rates
  uint64_t link_bytes = kGib;          // one large copy over the link
  uint64_t pinned_bytes = 4 * kGib;    // G11, G12
  uint64_t dying_bytes = 8 * kGib;     // G13
  double return_seconds = 15;          // G13: until all memory must be back
  double filled_share = 0.9;           // of the free device memory, G21
  uint64_t matrix = 8192;              // R2
  double stuck_seconds = 0.3;          // how long something must not progress to count as stuck
};
Effort FullEffort();
Effort QuickEffort();

struct Context {
  const gpu::DriverApi& driver;
  int device = 0;
  Effort effort;
  double soft_deadline = 0;  // Now() after which a probe starts no further round
  Progress progress;
};

struct Probe {
  const char* id;
  const char* question;
  double seconds;        // after which the probe starts no further round
  double quick_seconds;  // the same limit with --quick
  Outcome (*run)(const Context&);
};
// All probes, in the order in which they run: the most important first.
const std::vector<Probe>& Catalogue();

// The probes, by source file.
// lifetime.cc
Outcome ProbeContextFreeExport(const Context& context);  // G1
Outcome ProbeExporterDeath(const Context& context);      // G2
Outcome ProbeLastProcess(const Context& context);        // G3
Outcome ProbePollEvents(const Context& context);         // G4
Outcome ProbeAccounting(const Context& context);         // G22
// slabs.cc
Outcome ProbeSlabLatency(const Context& context);  // G5
Outcome ProbeSharing(const Context& context);      // G6
Outcome ProbeMapOffset(const Context& context);    // G7
Outcome ProbeFreshMemory(const Context& context);  // G21
// host_memory.cc
Outcome ProbeRegistration(const Context& context);        // G11
Outcome ProbeRegistrationPieces(const Context& context);  // G12
Outcome ProbeRegisteredDeath(const Context& context);     // G13
// overlap.cc
Outcome ProbeOverlap(const Context& context);  // G14
Outcome ProbePieces(const Context& context);   // G15
// words.cc
Outcome ProbeCompletionWords(const Context& context);  // G16
Outcome ProbeDeadWriter(const Context& context);       // G17
Outcome ProbeHostFunction(const Context& context);     // G18
// dma_death.cc
Outcome ProbeDmaAfterDeath(const Context& context);  // G20
// rates.cc
Outcome ProbeContextSize(const Context& context);  // G19
Outcome ProbeDeviceCopy(const Context& context);   // R1
Outcome ProbeMatrixRate(const Context& context);   // R2
Outcome ProbeLink(const Context& context);         // R3

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_PROBE_H_
