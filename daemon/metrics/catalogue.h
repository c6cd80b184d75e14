// Every metric of the daemon: its name, type and labels, and the most series that it can have.
//
// docs/metrics.md shows people the same table; a test compares the two. The names are an interface:
// users must be told when one changes.
#ifndef GEMINID_DAEMON_METRICS_CATALOGUE_H_
#define GEMINID_DAEMON_METRICS_CATALOGUE_H_

#include <array>
#include <cstddef>
#include <span>

#include "daemon/core/basics/time_histogram.h"
#include "daemon/core/engine/refusals.h"
#include "daemon/core/transfers/transfer_scheduler.h"
#include "daemon/metrics/session_counters.h"

namespace geminid::metrics {

inline constexpr size_t kMostLabels = 7;
// The tenants that hold most have series of their own; all other tenants are summed as "other".
inline constexpr size_t kMaxTenantSeries = 64;
// Methods of the control plane. Once so many have been called, further methods are not counted.
inline constexpr size_t kMaxMethods = 40;
// All status codes of gRPC except OK.
inline constexpr size_t kErrorCodes = 16;

// Series = fixed + per_device * devices. Each bucket, the sum and the count of a histogram is one.
struct MostSeries {
  size_t fixed = 1;
  size_t per_device = 0;
};

enum class MetricType { kCounter, kGauge, kHistogram };
const char* Name(MetricType type);

// `help` is a sentence. A series leaves out labels whose value is empty.
struct Metric {
  const char* name;
  MetricType type;
  std::array<const char*, kMostLabels> labels{};  // null: no label
  MostSeries most{};
  const char* help;
};

inline constexpr auto kCounter = MetricType::kCounter;
inline constexpr auto kGauge = MetricType::kGauge;
inline constexpr auto kHistogram = MetricType::kHistogram;

// --- how the series are counted ------------------------------------------------------------------
inline constexpr size_t kKinds = static_cast<size_t>(shm::kLastChunkKind);
inline constexpr size_t kTransferCauses = core::kCauses - 1;  // kNone is no cause
inline constexpr size_t kOfHistogram = core::TimeHistogram::kRanges + 2;
inline constexpr size_t kRefusalSeries = 2 * (core::Refusals::kMostRows + 32);
inline constexpr size_t kSessionSeries = kMaxSessionSeries + 1;
// Host memory and the disk, if the node has one.
inline constexpr size_t kTiersOfNoDevice = 2;
// A session uses host memory and one device; the sessions summed as "other" may use every device.
inline constexpr MostSeries kPerSessionAndTier = {2 * kMaxSessionSeries + 1, 1};
inline constexpr MostSeries kPerSessionTierAndKind = {kKinds * (2 * kMaxSessionSeries + 1), kKinds};
inline constexpr MostSeries kPerTenantAndTier = {kTiersOfNoDevice * (kMaxTenantSeries + 1),
                                                 kMaxTenantSeries + 1};

// --- the daemon ----------------------------------------------------------------------------------
inline constexpr Metric kBuildInfo = {
    "geminid_build_info", kGauge, {"version"}, {1}, "Always 1; the label says which build."};
inline constexpr Metric kEpoch = {
    "geminid_epoch", kGauge, {}, {1}, "How often a daemon has started on this socket."};
inline constexpr Metric kPhase = {
    "geminid_phase",
    kGauge,
    {"phase"},
    {3},
    "1 for the phase the daemon is in, else 0: serving, drained of new jobs, or stopping."};
inline constexpr Metric kReloadGood = {
    "geminid_config_last_reload_successful",
    kGauge,
    {},
    {1},
    "1 if the configuration was good when it was last read, else 0."};
inline constexpr Metric kReloadTime = {"geminid_config_last_reload_success_timestamp_seconds",
                                       kGauge,
                                       {},
                                       {1},
                                       "When the configuration in force was read."};
inline constexpr Metric kSessionsSurvive = {
    "geminid_sessions_survive",
    kGauge,
    {},
    {1},
    "1 if the next daemon would find the sessions, 0 if they would end with this one; absent if "
    "restart_time is 0."};
inline constexpr Metric kLostSockets = {
    "geminid_lost_sockets",
    kGauge,
    {},
    {1},
    "Sockets of the daemon whose files were removed or replaced: clients do not find it."};
inline constexpr Metric kChecks = {"geminid_invariant_checks_total",
                                   kCounter,
                                   {},
                                   {1},
                                   "Times a part of the accounts was checked against the rest."};
inline constexpr Metric kViolations = {
    "geminid_invariant_violations_total",
    kCounter,
    {},
    {1},
    "Different contradictions that the checks found. Anything but 0 is a bug."};
inline constexpr Metric kOverhead = {
    "geminid_overhead_bytes",
    kGauge,
    {},
    {1},
    "Most shared memory outside the tiers: tables and rings of sessions, records of chunks."};

// --- memory --------------------------------------------------------------------------------------
inline constexpr Metric kTierCapacity = {"geminid_tier_capacity_bytes",
                                         kGauge,
                                         {"tier", "device"},
                                         {kTiersOfNoDevice, 1},
                                         "Memory of the tier that may be handed out."};
inline constexpr Metric kTierBytes = {
    "geminid_tier_bytes",
    kGauge,
    {"tier", "device", "state"},
    {3 * kTiersOfNoDevice, 3},
    "Memory of the tier: in_use by chunks, reserved without a chunk in it, free. They add up to "
    "the capacity."};
inline constexpr Metric kTierPeak = {
    "geminid_tier_peak_in_use_bytes",
    kGauge,
    {"tier", "device"},
    {kTiersOfNoDevice, 1},
    "Most that chunks have used of the tier at one time since the start."};
inline constexpr Metric kInUse = {"geminid_in_use_bytes",
                                  kGauge,
                                  {"tier", "device", "kind"},
                                  {kKinds * kTiersOfNoDevice, kKinds},
                                  "Memory of chunks by what is in them."};
inline constexpr Metric kTenantBytes = {"geminid_tenant_bytes",
                                        kGauge,
                                        {"tenant", "tier", "device"},
                                        kPerTenantAndTier,
                                        "Memory that is charged to the tenant."};
inline constexpr Metric kTenantLimit = {"geminid_tenant_limit_bytes",
                                        kGauge,
                                        {"tenant", "tier", "device"},
                                        kPerTenantAndTier,
                                        "Most memory the tenant may have; none without a limit."};
inline constexpr Metric kTenantGuaranteed = {
    "geminid_tenant_guaranteed_bytes",
    kGauge,
    {"tenant", "tier", "device"},
    kPerTenantAndTier,
    "Memory that other tenants cannot take from the tenant; none without a guarantee."};
inline constexpr Metric kTenantKept = {"geminid_tenant_kept_bytes",
                                       kGauge,
                                       {"tenant", "tier", "device"},
                                       kPerTenantAndTier,
                                       "Memory that is kept for clients of the tenant that died."};
inline constexpr Metric kSessionBytes = {
    "geminid_session_bytes",
    kGauge,
    {"tenant", "job_name", "rank", "session", "tier", "device"},
    kPerSessionAndTier,
    "Memory that was handed out to the rank: its pools, its arena."};
inline constexpr Metric kSessionInUse = {
    "geminid_session_in_use_bytes",
    kGauge,
    {"tenant", "job_name", "rank", "session", "tier", "device", "kind"},
    kPerSessionTierAndKind,
    "Memory of the rank's chunks by what is in them."};
inline constexpr Metric kAllocationSeconds = {
    "geminid_allocation_seconds",
    kHistogram,
    {"tier"},
    {2 * kOfHistogram},
    "Time to make memory that was promised, and to pass it to its client."};

// --- sessions ------------------------------------------------------------------------------------
inline constexpr Metric kSessions = {
    "geminid_sessions",
    kGauge,
    {"state"},
    {2},
    "Sessions: attached clients, and dead clients whose memory is kept."};
inline constexpr Metric kSessionsLimit = {
    "geminid_sessions_limit", kGauge, {}, {1}, "Most sessions of all tenants, kept ones included."};
inline constexpr Metric kSessionsOpened = {
    "geminid_sessions_opened_total", kCounter, {}, {1}, "Sessions ever attached."};
inline constexpr Metric kSessionsKept = {"geminid_sessions_kept_total",
                                         kCounter,
                                         {},
                                         {1},
                                         "Sessions whose client died and whose memory was kept."};
inline constexpr Metric kSessionsResumed = {"geminid_sessions_resumed_total",
                                            kCounter,
                                            {},
                                            {1},
                                            "Kept sessions that a replacement rank took over."};
inline constexpr Metric kSuccessorWait = {
    "geminid_successor_wait_seconds",
    kHistogram,
    {},
    {kOfHistogram},
    "Time from a client's death until a replacement rank took its session over."};
inline constexpr Metric kSessionsTakenOver = {
    "geminid_sessions_taken_over",
    kGauge,
    {"outcome"},
    {2},
    "Sessions of the previous daemon, which died: those that this daemon took over, and those that "
    "were lost."};
inline constexpr Metric kTakeOverSeconds = {"geminid_take_over_seconds",
                                            kGauge,
                                            {},
                                            {1},
                                            "Time in which this daemon took over the previous "
                                            "daemon's sessions; 0: there was no previous daemon."};
inline constexpr Metric kSessionsExpired = {
    "geminid_sessions_expired_total", kCounter, {}, {1}, "Kept sessions whose time was over."};
inline constexpr Metric kChunks = {"geminid_chunks", kGauge, {}, {1}, "Chunks of all sessions."};
inline constexpr Metric kChunksLimit = {
    "geminid_chunks_limit", kGauge, {}, {1}, "Most chunks of all sessions."};
inline constexpr Metric kPlanMemory = {
    "geminid_plan_memory_bytes",
    kGauge,
    {},
    {1},
    "The daemon's memory for plans and the traces they were made from."};
inline constexpr Metric kPlanMemoryLimit = {
    "geminid_plan_memory_limit_bytes", kGauge, {}, {1}, "Most memory for plans and traces."};
inline constexpr Metric kStall = {
    "geminid_client_stall_seconds_total",
    kCounter,
    {"tenant", "job_name", "rank", "session", "cause"},
    {shm::kStallCauses * kSessionSeries},
    "Time a rank's computation waited, as its client counts it; no more than it has existed."};
inline constexpr Metric kAdmissionWait = {"geminid_client_queued_seconds_total",
                                          kCounter,
                                          {"tenant", "job_name", "rank", "session"},
                                          {kSessionSeries},
                                          "Time a rank waited to be admitted, as its client counts "
                                          "it, at the start or again; not a stall."};
inline constexpr Metric kSteps = {"geminid_client_steps_total",
                                  kCounter,
                                  {"tenant", "job_name", "rank", "session"},
                                  {kSessionSeries},
                                  "Optimizer steps, as the rank's client counts them."};
inline constexpr Metric kClientDiskTraffic = {
    "geminid_client_disk_bytes_total",
    kCounter,
    {"tenant", "job_name", "rank", "session", "direction"},
    {2 * kSessionSeries},
    "Bytes of optimizer state that a rank's client read from its files on disks (direction read) "
    "and wrote to them (written), as it counts them."};
inline constexpr Metric kClientDiskFiles = {"geminid_client_disk_file_bytes",
                                            kGauge,
                                            {"tenant", "job_name", "rank", "session"},
                                            {kSessionSeries},
                                            "Size of the files that hold a rank's optimizer state, "
                                            "as its client says."};
inline constexpr Metric kBatch = {"geminid_client_step_sequences",
                                  kGauge,
                                  {"tenant", "job_name", "rank", "session"},
                                  {kSessionSeries - 1},
                                  "Sequences of all ranks in a step, as rank 0's trainer says."};
inline constexpr Metric kNoiseScale = {"geminid_client_gradient_noise_sequences",
                                       kGauge,
                                       {"tenant", "job_name", "rank", "session"},
                                       {kSessionSeries - 1},
                                       "The gradient noise scale: the step, in sequences, whose "
                                       "gradient is half noise. None while it is not known."};
inline constexpr Metric kAdvisedBatch = {
    "geminid_client_advised_step_sequences",
    kGauge,
    {"tenant", "job_name", "rank", "session"},
    {kSessionSeries - 1},
    "The step, in sequences, with the most goodput. None while it is not known."};
inline constexpr Metric kSessionTransfer = {"geminid_session_transfer_bytes_total",
                                            kCounter,
                                            {"tenant", "job_name", "rank", "session", "direction"},
                                            {core::kDirections * kSessionSeries},
                                            "Bytes copied under tickets of the rank."};
inline constexpr Metric kPlanBytes = {"geminid_plan_transfer_bytes",
                                      kGauge,
                                      {"tenant", "job_name", "rank", "session"},
                                      {kSessionSeries},
                                      "Host-to-device bytes per iteration by the rank's plan."};
inline constexpr Metric kPlanBound = {
    "geminid_plan_lower_bound_bytes",
    kGauge,
    {"tenant", "job_name", "rank", "session"},
    {kSessionSeries},
    "Host-to-device bytes per iteration that no plan for the same trace can go "
    "below."};
// Its states are: registered, refused by the driver, and waiting.
inline constexpr size_t kRegistrationStates = 3;
inline constexpr Metric kRegistrationBytes = {
    "geminid_client_registration_bytes",
    kGauge,
    {"tenant", "job_name", "rank", "session", "state"},
    {kRegistrationStates * kSessionSeries},
    "The rank's host memory for its GPU's driver to page-lock, as its client counts it: "
    "registered, refused, waiting."};
inline constexpr Metric kRegistrationPieces = {
    "geminid_client_registration_pieces",
    kGauge,
    {"tenant", "job_name", "rank", "session", "state"},
    {kRegistrationStates * kSessionSeries},
    "Pieces of that memory, by the same states: the driver is called once for each."};

// --- jobs ----------------------------------------------------------------------------------------
inline constexpr Metric kJobs = {
    "geminid_jobs",
    kGauge,
    {"state"},
    {5},
    "Jobs that asked for admission: gathering, queued, running, yielding or preempted."};
inline constexpr Metric kOldestWait = {
    "geminid_jobs_oldest_wait_timestamp_seconds",
    kGauge,
    {},
    {1},
    "When the job that waits longest began to wait; none while no job waits."};
inline constexpr Metric kJobsAdmitted = {
    "geminid_jobs_admitted_total",
    kCounter,
    {},
    {1},
    "Admissions of jobs; one that was preempted and goes on counts again."};
inline constexpr Metric kJobsPreempted = {
    "geminid_jobs_preempted_total",
    kCounter,
    {},
    {1},
    "Times a running job began to give its device memory back."};
inline constexpr Metric kJobsUndone = {
    "geminid_jobs_undone_total",
    kCounter,
    {},
    {1},
    "Jobs that were refused, or whose ranks did not all arrive in time."};
inline constexpr Metric kSharingChanges = {
    "geminid_sharing_changes_total",
    kCounter,
    {"outcome"},
    {2},
    "Changes of a job's number of ranks by the daemon, to share the node: done or refused."};
inline constexpr Metric kScaleRequests = {
    "geminid_scale_requests_total",
    kCounter,
    {"outcome"},
    {3},
    "Requests by people for another number of a job's ranks: done; refused, before the ranks began "
    "the change; gone_back, when they had begun it and it was not done."};
inline constexpr Metric kMoveRequests = {
    "geminid_move_requests_total",
    kCounter,
    {"outcome"},
    {3},
    "Requests by people that a job go on at another host, by the same outcomes. The daemon that "
    "the job leaves counts them."};
inline constexpr Metric kJobsShrunk = {
    "geminid_jobs_shrunk_total",
    kCounter,
    {},
    {1},
    "Times a job went on with fewer ranks after a rank's death for which no restart was left."};

// --- links ---------------------------------------------------------------------------------------
inline constexpr MostSeries kPerLink = {0, core::kDirections};
inline constexpr MostSeries kPerLinkAndCause = {0, core::kDirections* kTransferCauses};
inline constexpr MostSeries kHistogramPerLink = {0, core::kDirections* kOfHistogram};

inline constexpr Metric kTransferBytes = {"geminid_transfer_bytes_total",
                                          kCounter,
                                          {"device", "direction", "cause"},
                                          kPerLinkAndCause,
                                          "Bytes copied under tickets."};
inline constexpr Metric kTransfers = {"geminid_transfers_total",
                                      kCounter,
                                      {"device", "direction", "cause"},
                                      kPerLinkAndCause,
                                      "Copies made under tickets."};
inline constexpr Metric kLinkBusy = {
    "geminid_link_busy_seconds_total",
    kCounter,
    {"device", "direction"},
    kPerLink,
    "Time in which at least one copy was under way: bytes over it are the speed achieved."};
inline constexpr Metric kInFlight = {"geminid_transfers_in_flight",
                                     kGauge,
                                     {"device", "direction"},
                                     kPerLink,
                                     "Copies granted and not reported complete."};
inline constexpr Metric kInFlightBytes = {"geminid_transfers_in_flight_bytes",
                                          kGauge,
                                          {"device", "direction"},
                                          kPerLink,
                                          "Bytes of these copies."};
inline constexpr Metric kQueued = {"geminid_transfers_queued",
                                   kGauge,
                                   {"device", "direction"},
                                   kPerLink,
                                   "Copies asked for that wait for a ticket."};
inline constexpr Metric kQueuedBytes = {"geminid_transfers_queued_bytes",
                                        kGauge,
                                        {"device", "direction"},
                                        kPerLink,
                                        "Bytes of these copies."};
inline constexpr Metric kWaitSeconds = {"geminid_transfer_wait_seconds",
                                        kHistogram,
                                        {"device", "direction"},
                                        kHistogramPerLink,
                                        "Time from the request of a copy to its ticket."};
inline constexpr Metric kCopySeconds = {"geminid_transfer_seconds",
                                        kHistogram,
                                        {"device", "direction"},
                                        kHistogramPerLink,
                                        "Time from a copy's ticket to its completion."};
inline constexpr Metric kOverdue = {"geminid_transfers_overdue_total",
                                    kCounter,
                                    {"device"},
                                    {0, 1},
                                    "Copies that were not complete in time."};

// --- GPUs ----------------------------------------------------------------------------------------
inline constexpr Metric kAgentUp = {"geminid_gpu_agent_up",
                                    kGauge,
                                    {"device"},
                                    {0, 1},
                                    "1 if the GPU's agent serves and can allocate memory."};
inline constexpr Metric kAgentRestarts = {"geminid_gpu_agent_restarts_total",
                                          kCounter,
                                          {"device"},
                                          {0, 1},
                                          "Times the GPU's agent was started again."};
inline constexpr Metric kGpuMemory = {
    "geminid_gpu_memory_bytes",
    kGauge,
    {"device", "state"},
    {0, 3},
    "The GPU's own memory as its driver counts it: total, free, and in the slabs of the agent."};
inline constexpr Metric kGpuHealth = {
    "geminid_gpu_health",
    kGauge,
    {"device", "health"},
    {0, 4},
    "1 for the state of the GPU, else 0: healthy, degraded, unhealthy (it takes no new sessions), "
    "unknown."};
inline constexpr Metric kGpuErrors = {
    "geminid_gpu_uncorrected_errors",
    kGauge,
    {"device", "since"},
    {0, 2},
    "Errors of the GPU's memory that ECC did not correct, since the driver was loaded (load) or "
    "ever; none if the driver does not report them."};
inline constexpr Metric kGpuFaults = {
    "geminid_gpu_memory_fault",
    kGauge,
    {"device", "fault"},
    {0, 3},
    "1 if the state holds, else 0: retired_pages_pending, row_remap_pending, row_remap_failed; "
    "none if the driver does not report it."};
// The daemon tells so many Xids apart (gpus/gpu_health.h).
inline constexpr size_t kXidSeries = 32;
inline constexpr Metric kGpuXids = {"geminid_gpu_xids_total",
                                    kCounter,
                                    {"device", "xid"},
                                    {0, kXidSeries},
                                    "Xids that the GPU's driver reported, by number."};

// --- requests ------------------------------------------------------------------------------------
inline constexpr Metric kRequests = {
    "geminid_requests_total", kCounter, {}, {1}, "Requests taken from the sessions' rings."};
inline constexpr Metric kRequestErrors = {
    "geminid_request_errors_total", kCounter, {}, {1}, "Requests answered with an error."};
inline constexpr Metric kDrops = {
    "geminid_drops_total", kCounter, {}, {1}, "Device copies that their clients dropped."};
inline constexpr Metric kEvictions = {
    "geminid_evictions_total",
    kCounter,
    {},
    {1},
    "Device copies that were evicted to make room for others. Drops do not count."};
inline constexpr Metric kEvictionsRefused = {"geminid_evictions_refused_total",
                                             kCounter,
                                             {},
                                             {1},
                                             "Evictions abandoned because of a lease."};
inline constexpr Metric kRpcSeconds = {
    "geminid_rpc_seconds",
    kHistogram,
    {"method"},
    {kMaxMethods * kOfHistogram},
    "Time of calls to the control plane, waiting for their turn included."};
inline constexpr Metric kRpcErrors = {"geminid_rpc_errors_total",
                                      kCounter,
                                      {"method", "code"},
                                      {kMaxMethods * kErrorCodes},
                                      "Calls that ended with an error."};
inline constexpr Metric kRefused = {
    "geminid_limit_refused_total",
    kCounter,
    {"limit", "tenant"},
    {kRefusalSeries},
    "Times a tenant wanted more than a limit gives it, and was refused or had to wait."};

// --- the process: names follow the convention of Prometheus' client libraries --------------------
inline constexpr Metric kCpu = {
    "process_cpu_seconds_total", kCounter, {}, {1}, "User and system time."};
inline constexpr Metric kStart = {
    "process_start_time_seconds", kGauge, {}, {1}, "Start of the process since the Unix epoch."};
inline constexpr Metric kResident = {
    "process_resident_memory_bytes", kGauge, {}, {1}, "Resident memory, shared pages included."};
inline constexpr Metric kVirtual = {
    "process_virtual_memory_bytes", kGauge, {}, {1}, "Virtual memory."};
inline constexpr Metric kOpenFds = {"process_open_fds", kGauge, {}, {1}, "Open descriptors."};
inline constexpr Metric kMaxFds = {
    "process_max_fds", kGauge, {}, {1}, "Most descriptors that may be open."};
inline constexpr Metric kThreads = {"process_threads", kGauge, {}, {1}, "Threads."};

// All metrics, in the order of the page.
std::span<const Metric* const> Catalogue();

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_CATALOGUE_H_
