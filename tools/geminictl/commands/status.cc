#include "tools/geminictl/commands/status.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "proto/shm/types.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/account.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/output/table.h"

namespace geminid::ctl {
namespace {

// More jobs than this do not help to see who holds the memory.
constexpr size_t kJobsShown = 12;

std::string Tiers(const v1::Ledger& ledger, const Style& style) {
  Table table({{"TIER"},
               {"CAPACITY", Align::kRight},
               {"IN_USE", Align::kRight},
               {"RESERVED", Align::kRight},
               {"FREE", Align::kRight},
               {"PEAK_IN_USE", Align::kRight}});
  for (const v1::TierLedger& tier : ledger.tiers()) {
    table.AddRow({AccountName(tier), base::FormatBytes(tier.capacity_bytes()),
                  base::FormatBytes(tier.in_use_bytes()), base::FormatBytes(tier.reserved_bytes()),
                  base::FormatBytes(tier.free_bytes()),
                  base::FormatBytes(tier.peak_in_use_bytes())});
  }
  return table.Render(style);
}

std::string Devices(const v1::Status& status, const Style& style) {
  Table table({{"DEVICE", Align::kRight},
               {"KIND"},
               {"CAPACITY", Align::kRight},
               {"NUMA_NODE", Align::kRight},
               {"GRANULARITY", Align::kRight},
               {"UUID"},
               {"NAME"}});
  for (const v1::DeviceDescription& device : status.devices()) {
    table.AddRow({absl::StrCat(device.index()),
                  shm::Name(static_cast<shm::DeviceKind>(device.kind())),
                  base::FormatBytes(device.capacity_bytes()),
                  device.has_numa_node() ? absl::StrCat(device.numa_node()) : "",
                  base::FormatBytes(device.granularity_bytes()), device.uuid(), device.name()});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.Render(style));
}

constexpr char kUnknown[] = "unknown";

std::string Pages(const v1::GpuInfo& gpu) {
  if (!gpu.has_retired_pages_pending()) return kUnknown;
  return gpu.retired_pages_pending() ? "pending" : "good";
}

std::string Rows(const v1::GpuInfo& gpu) {
  if (!gpu.has_row_remap_failed()) return kUnknown;
  if (gpu.row_remap_failed()) return "failed";
  return gpu.row_remap_pending() ? "pending" : "good";
}

// "48,79*3": number 48 once, 79 three times.
std::string Xids(const v1::GpuInfo& gpu) {
  if (gpu.xids().empty()) return gpu.xids_watched() ? "none" : kUnknown;
  return absl::StrJoin(gpu.xids(), ",", [](std::string* out, const v1::XidCount& count) {
    absl::StrAppend(out, count.xid());
    if (count.times() > 1) absl::StrAppend(out, "*", count.times());
  });
}

void AddHealth(const v1::GpuInfo& gpu, Table* table) {
  table->AddRow(
      {absl::StrCat(gpu.device()), gpu.health(),
       gpu.has_uncorrected_errors() ? absl::StrCat(gpu.uncorrected_errors()) : kUnknown,
       gpu.has_uncorrected_errors_ever() ? absl::StrCat(gpu.uncorrected_errors_ever()) : kUnknown,
       Pages(gpu), Rows(gpu), Xids(gpu), absl::StrJoin(gpu.health_reasons(), "; ")});
}

// The GPUs, the processes that allocate their memory, and their health.
std::string Gpus(const v1::Status& status, const Style& style) {
  Table table({{"DEVICE", Align::kRight},
               {"AGENT"},
               {"PID", Align::kRight},
               {"RESTARTS", Align::kRight},
               {"SLABS", Align::kRight},
               {"GPU_FREE", Align::kRight},
               {"WHY"}});
  Table health({{"DEVICE", Align::kRight},
                {"HEALTH"},
                {"UNCORRECTED", Align::kRight},
                {"EVER", Align::kRight},
                {"PAGES"},
                {"ROWS"},
                {"XIDS"},
                {"WHY"}});
  for (const v1::GpuInfo& gpu : status.gpus()) {
    AddHealth(gpu, &health);
    table.AddRow({absl::StrCat(gpu.device()), gpu.agent(),
                  gpu.pid() == 0 ? "" : absl::StrCat(gpu.pid()), absl::StrCat(gpu.restarts()),
                  base::FormatBytes(gpu.slab_bytes()),
                  gpu.has_free_bytes() ? base::FormatBytes(gpu.free_bytes()) : "", gpu.why()});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.Render(style), "\n", health.Render(style));
}

// The host memory that ranks page-lock for their GPUs, the worst first.
std::string Registrations(const v1::Status& status, const Style& style) {
  std::vector<const v1::HostRegistration*> ranks;
  for (const v1::HostRegistration& rank : status.host_registrations()) ranks.push_back(&rank);
  std::stable_sort(ranks.begin(), ranks.end(), [](const auto* left, const auto* right) {
    const auto waiting = [](const v1::HostRegistration& rank) {
      return rank.bytes() - rank.registered_bytes() - rank.refused_bytes();
    };
    return std::pair(left->refused_bytes(), waiting(*left)) >
           std::pair(right->refused_bytes(), waiting(*right));
  });
  Table table({{"DEVICE", Align::kRight},
               {"TENANT"},
               {"JOB"},
               {"RANK", Align::kRight},
               {"HOST", Align::kRight},
               {"REGISTERED", Align::kRight},
               {"REFUSED", Align::kRight},
               {"PIECES", Align::kRight},
               {"FAILED", Align::kRight}});
  for (size_t i = 0; i < std::min(ranks.size(), kJobsShown); ++i) {
    const v1::HostRegistration& rank = *ranks[i];
    table.AddRow({absl::StrCat(rank.device()), rank.tenant(), rank.job(), absl::StrCat(rank.rank()),
                  base::FormatBytes(rank.bytes()), base::FormatBytes(rank.registered_bytes()),
                  base::FormatBytes(rank.refused_bytes()),
                  absl::StrCat(rank.registered_pieces(), "/", rank.pieces()),
                  absl::StrCat(rank.refused_pieces())});
  }
  if (table.empty()) return "";
  std::string shown = absl::StrCat("\n", table.Render(style));
  if (ranks.size() > kJobsShown) {
    absl::StrAppend(&shown, "and ", ranks.size() - kJobsShown,
                    " further ranks; 'geminictl status --json' has all\n");
  }
  return shown;
}

struct JobTotals {
  uint64_t ranks = 0;
  uint64_t kept = 0;
  uint64_t chunks = 0;
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
  uint64_t bytes() const { return host_bytes + device_bytes; }
};

// The holders of the memory: a job is all sessions of one name and tenant. The largest first.
std::string Jobs(const v1::ListSessionsResponse& sessions, const Style& style) {
  std::map<std::pair<std::string, std::string>, JobTotals> totals;
  for (const v1::SessionInfo& session : sessions.sessions()) {
    JobTotals& job = totals[{session.tenant(), session.job()}];
    job.ranks += 1;
    job.kept += session.state() == "attached" ? 0 : 1;
    job.chunks += session.chunks();
    job.host_bytes += session.host_bytes();
    job.device_bytes += session.device_bytes();
  }
  std::vector<std::pair<std::pair<std::string, std::string>, JobTotals>> jobs(totals.begin(),
                                                                              totals.end());
  std::stable_sort(jobs.begin(), jobs.end(), [](const auto& left, const auto& right) {
    return left.second.bytes() > right.second.bytes();
  });
  Table table({{"TENANT"},
               {"JOB"},
               {"RANKS", Align::kRight},
               {"KEPT", Align::kRight},
               {"CHUNKS", Align::kRight},
               {"HOST_MEM", Align::kRight},
               {"DEVICE_MEM", Align::kRight}});
  for (size_t i = 0; i < std::min(jobs.size(), kJobsShown); ++i) {
    const auto& [name, job] = jobs[i];
    table.AddRow({name.first, name.second, absl::StrCat(job.ranks), absl::StrCat(job.kept),
                  absl::StrCat(job.chunks), base::FormatBytes(job.host_bytes),
                  base::FormatBytes(job.device_bytes)});
  }
  if (table.empty()) return "";
  std::string shown = absl::StrCat("\n", table.Render(style));
  if (jobs.size() > kJobsShown) {
    absl::StrAppend(&shown, "and ", jobs.size() - kJobsShown,
                    " smaller; 'geminictl ls sessions' has all\n");
  }
  return shown;
}

// Explains the kinds to people who do not know the optimizer's terms.
const char* Meaning(shm::ChunkKind kind) {
  switch (kind) {
    case shm::ChunkKind::kWeight:
      return "weights in the type of the computation";
    case shm::ChunkKind::kRemainder:
      return "the bits that weights lack to be fp32";
    case shm::ChunkKind::kExpAvg:
      return "the optimizer's mean of gradients";
    case shm::ChunkKind::kExpAvgSq:
      return "the optimizer's mean of squared gradients";
    case shm::ChunkKind::kGradient:
      return "gradients, or sums of them";
    case shm::ChunkKind::kGatheredWeight:
      return "weights gathered from all ranks for the operator that uses them";
    case shm::ChunkKind::kSpare:
      return "memory where an update is written before it becomes the state";
    case shm::ChunkKind::kGeneric:
      return "buffers, such as those between ranks";
    case shm::ChunkKind::kShared:
      return "memory that ranks share";
    case shm::ChunkKind::kOnDisk:
      return "files of optimizer state on disk";
    default:
      return "";
  }
}

// The contents by kind, all jobs together. ON_HOST counts the chunks whose place is in host memory.
std::string Kinds(const v1::Ledger& ledger, const Style& style) {
  struct Totals {
    uint64_t chunks = 0;
    uint64_t host_bytes = 0;
    uint64_t device_bytes = 0;
    uint64_t disk_bytes = 0;
  };
  std::map<int, Totals> kinds;
  for (const v1::LedgerEntry& entry : ledger.entries()) {
    Totals& kind = kinds[entry.kind()];
    const bool on_disk = entry.tier() == v1::TIER_DISK;
    (on_disk              ? kind.disk_bytes
     : entry.has_device() ? kind.device_bytes
                          : kind.host_bytes) += entry.bytes();
    kind.chunks += on_disk || entry.has_device() ? 0 : entry.chunks();
  }
  Table table({{"KIND"},
               {"ON_HOST", Align::kRight},
               {"HOST_MEM", Align::kRight},
               {"DEVICE_MEM", Align::kRight},
               {"DISK", Align::kRight},
               {"WHAT"}});
  for (const auto& [kind, totals] : kinds) {
    const auto named = static_cast<shm::ChunkKind>(kind);
    table.AddRow({shm::Name(named), absl::StrCat(totals.chunks),
                  base::FormatBytes(totals.host_bytes), base::FormatBytes(totals.device_bytes),
                  base::FormatBytes(totals.disk_bytes), Meaning(named)});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.Render(style));
}

std::string Facts(const v1::Status& status, const Style& style) {
  Table table({{"MACHINE"}, {"USED"}, {"VALUE"}});
  for (const v1::MachineFact& fact : status.facts()) {
    const std::string why_not =
        fact.why_not().empty() ? "" : absl::StrCat(" (", fact.why_not(), ")");
    table.AddRow({fact.name(), fact.in_use() ? "yes" : "no", fact.value() + why_not});
  }
  return absl::StrCat("\n", table.Render(style));
}

std::string MetricsAddress(const std::string& address) {
  if (address.empty()) return "off";
  // A browser cannot open a Unix socket.
  if (absl::StartsWith(address, "unix:")) return Printable(address);
  return absl::StrCat("http://", Printable(address), "/metrics");
}

}  // namespace

std::string DescribeStatus(const v1::Status& status, const v1::ListSessionsResponse& sessions,
                           const Style& style) {
  const std::string title = absl::StrCat("geminid ", status.version(), ", ", status.phase(),
                                         ", up ", FormatDuration(status.uptime_seconds()));
  return absl::StrCat(
      Paint(Printable(title), Color::kBold, style), "\n", "socket    ", Printable(status.socket()),
      "\nmetrics   ", MetricsAddress(status.metrics_address()), "\nprocess   ", status.pid(),
      ", start number ", status.daemon_epoch(), "\nsessions  ", status.sessions(), "\n\n",
      Tiers(status.ledger(), style),
      status.ledger().adds_up() ? "The ledger adds up.\n"
                                : Paint("The ledger does NOT add up.\n", Color::kRed, style),
      status.drained() ? "The daemon is drained: it admits no new jobs.\n" : "",
      Jobs(sessions, style), Kinds(status.ledger(), style), Devices(status, style),
      Gpus(status, style), Registrations(status, style), Facts(status, style));
}

absl::StatusOr<int> RunStatus(const Context& context) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::Status status, client->GetStatus());
  if (context.json) {
    *context.out << JsonDocument({&status});
  } else {
    GEMINID_ASSIGN_OR_RETURN(const v1::ListSessionsResponse sessions, client->ListSessions());
    *context.out << DescribeStatus(status, sessions, context.style);
  }
  if (!status.ledger().adds_up()) {
    *context.err
        << "geminictl: for some tier in use + reserved + free is not the capacity: this is "
           "a defect of the daemon; keep its log and restart it when the ranks allow\n";
    return base::kExitUnhealthy;
  }
  if (status.phase() != "serving" && status.phase() != "drained") {
    *context.err << "geminictl: the daemon is " << Printable(status.phase())
                 << " and takes no new sessions; wait for it to end, then start it again\n";
    return base::kExitUnhealthy;
  }
  return base::kExitOk;
}

}  // namespace geminid::ctl
