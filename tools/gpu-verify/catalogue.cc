#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {

Effort FullEffort() { return Effort{}; }

Effort QuickEffort() {
  Effort effort;
  effort.slab_sizes = {64 * kMib, kGib};
  effort.kills = 20;
  effort.dma_kills = 60;
  effort.words = 100'000;
  effort.window_seconds = 0.3;
  effort.pinned_bytes = kGib;
  effort.dying_bytes = 2 * kGib;
  return effort;
}

const std::vector<Probe>& Catalogue() {
  static const std::vector<Probe> kProbes = {
      {"G2", "memory outlives its killed exporter while a descriptor is open", 60, 8,
       ProbeExporterDeath},
      {"G3", "memory outlives the last CUDA process of the machine", 15, 8, ProbeLastProcess},
      {"G20", "no copy of a killed process writes to host memory after its end", 90, 15,
       ProbeDmaAfterDeath},
      {"G1", "memory is created and exported without a context", 5, 4, ProbeContextFreeExport},
      {"G16", "a completion word follows the copied data for another process", 40, 8,
       ProbeCompletionWords},
      {"G14", "copies on own streams overlap kernels", 20, 8, ProbeOverlap},
      {"G11", "registered memfd memory is cheap to pin and as fast as the driver's own", 40, 10,
       ProbeRegistration},
      {"G4", "an exported descriptor reports no poll events", 3, 3, ProbePollEvents},
      {"G5", "a slab is created, exported, imported and mapped quickly", 15, 5, ProbeSlabLatency},
      {"G6", "several processes share a slab, and a read-only mapping cannot be written", 10, 6,
       ProbeSharing},
      {"G7", "part of a slab cannot be mapped alone", 3, 3, ProbeMapOffset},
      {"G12", "registering in pieces costs no more than at once", 15, 5, ProbeRegistrationPieces},
      {"G13", "memory of a killed process comes back promptly", 25, 8, ProbeRegisteredDeath},
      {"G15", "pieces with two in flight fill the link", 15, 5, ProbePieces},
      {"G17", "a stream that waits for a dead process can be freed", 8, 5, ProbeDeadWriter},
      {"G18", "a completion word is cheaper than a host function", 4, 3, ProbeHostFunction},
      {"G19", "a context costs device memory, the driver alone none", 5, 4, ProbeContextSize},
      {"G21", "fresh device memory is zero", 20, 6, ProbeFreshMemory},
      {"G22", "the driver's accounting shows memory that no process holds", 8, 5, ProbeAccounting},
      {"R1", "copy rate within the device", 5, 3, ProbeDeviceCopy},
      {"R2", "bf16 matrix rate", 10, 6, ProbeMatrixRate},
      {"R3", "rate of the link to the host, up, down and both", 8, 4, ProbeLink},
  };
  return kProbes;
}

}  // namespace geminid::gpu_verify
