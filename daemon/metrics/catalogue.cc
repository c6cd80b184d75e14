#include "daemon/metrics/catalogue.h"

namespace geminid::metrics {
namespace {

constexpr const Metric* kAll[] = {
    &kBuildInfo,
    &kEpoch,
    &kPhase,
    &kReloadGood,
    &kReloadTime,
    &kSessionsSurvive,
    &kLostSockets,
    &kChecks,
    &kViolations,
    &kOverhead,
    &kTierCapacity,
    &kTierBytes,
    &kTierPeak,
    &kInUse,
    &kTenantBytes,
    &kTenantLimit,
    &kTenantGuaranteed,
    &kTenantKept,
    &kSessionBytes,
    &kSessionInUse,
    &kAllocationSeconds,
    &kSessions,
    &kSessionsLimit,
    &kSessionsOpened,
    &kSessionsKept,
    &kSessionsResumed,
    &kSuccessorWait,
    &kSessionsTakenOver,
    &kTakeOverSeconds,
    &kSessionsExpired,
    &kChunks,
    &kChunksLimit,
    &kPlanMemory,
    &kPlanMemoryLimit,
    &kStall,
    &kAdmissionWait,
    &kSteps,
    &kClientDiskTraffic,
    &kClientDiskFiles,
    &kBatch,
    &kNoiseScale,
    &kAdvisedBatch,
    &kSessionTransfer,
    &kPlanBytes,
    &kPlanBound,
    &kRegistrationBytes,
    &kRegistrationPieces,
    &kJobs,
    &kOldestWait,
    &kJobsAdmitted,
    &kJobsPreempted,
    &kJobsUndone,
    &kSharingChanges,
    &kScaleRequests,
    &kMoveRequests,
    &kJobsShrunk,
    &kTransferBytes,
    &kTransfers,
    &kLinkBusy,
    &kInFlight,
    &kInFlightBytes,
    &kQueued,
    &kQueuedBytes,
    &kWaitSeconds,
    &kCopySeconds,
    &kOverdue,
    &kAgentUp,
    &kAgentRestarts,
    &kGpuMemory,
    &kGpuHealth,
    &kGpuErrors,
    &kGpuFaults,
    &kGpuXids,
    &kRequests,
    &kRequestErrors,
    &kDrops,
    &kEvictions,
    &kEvictionsRefused,
    &kRpcSeconds,
    &kRpcErrors,
    &kRefused,
    &kCpu,
    &kStart,
    &kResident,
    &kVirtual,
    &kOpenFds,
    &kMaxFds,
    &kThreads,
};

}  // namespace

const char* Name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      break;
  }
  return "histogram";
}

std::span<const Metric* const> Catalogue() { return kAll; }

}  // namespace geminid::metrics
