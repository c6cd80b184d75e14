#include "tools/geminictl/status.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "proto/shm/types.h"
#include "tools/geminictl/account.h"
#include "tools/geminictl/daemon_client.h"
#include "tools/geminictl/format.h"
#include "tools/geminictl/json_message.h"
#include "tools/geminictl/table.h"

namespace geminid::ctl {
namespace {

// More holders than this do not help to see who holds the memory; JSON has them all.
constexpr size_t kHoldersShown = 12;

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

std::string Holders(const v1::Ledger& ledger, const Style& style) {
  std::vector<const v1::LedgerEntry*> entries;
  for (const v1::LedgerEntry& entry : ledger.entries()) entries.push_back(&entry);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const v1::LedgerEntry* left, const v1::LedgerEntry* right) {
                     return left->bytes() > right->bytes();
                   });
  Table table({{"TIER"},
               {"KIND"},
               {"JOB"},
               {"RANK", Align::kRight},
               {"SESSION", Align::kRight},
               {"CHUNKS", Align::kRight},
               {"BYTES", Align::kRight}});
  for (size_t i = 0; i < std::min(entries.size(), kHoldersShown); ++i) {
    const v1::LedgerEntry& entry = *entries[i];
    table.AddRow({AccountName(entry), shm::Name(static_cast<shm::ChunkKind>(entry.kind())),
                  entry.job(), absl::StrCat(entry.rank()), absl::StrCat(entry.session()),
                  absl::StrCat(entry.chunks()), base::FormatBytes(entry.bytes())});
  }
  if (table.empty()) return "";
  std::string shown = absl::StrCat("\n", table.Render(style));
  if (entries.size() > kHoldersShown) {
    absl::StrAppend(&shown, "and ", entries.size() - kHoldersShown, " smaller; --json has all\n");
  }
  return shown;
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

std::string Describe(const v1::Status& status, const Style& style) {
  const std::string title = absl::StrCat("geminid ", status.version(), ", ", status.phase(),
                                         ", up ", FormatDuration(status.uptime_seconds()));
  return absl::StrCat(
      Paint(Printable(title), Color::kBold, style), "\n", "socket    ", Printable(status.socket()),
      "\nmetrics   ",
      status.metrics_address().empty()
          ? "off"
          : absl::StrCat("http://", Printable(status.metrics_address()), "/metrics"),
      "\nprocess   ", status.pid(), ", start number ", status.daemon_epoch(), "\nsessions  ",
      status.sessions(), "\n\n", Tiers(status.ledger(), style),
      status.ledger().adds_up() ? "The ledger adds up.\n"
                                : Paint("The ledger does NOT add up.\n", Color::kRed, style),
      Devices(status, style), Holders(status.ledger(), style), Facts(status, style));
}

}  // namespace

absl::StatusOr<int> RunStatus(const Context& context) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::Status status, client->GetStatus());
  *context.out << (context.json ? JsonDocument({&status}) : Describe(status, context.style));
  if (!status.ledger().adds_up()) {
    *context.err
        << "geminictl: for some tier in use + reserved + free is not the capacity: this is "
           "a defect of the daemon; keep its log and restart it when the ranks allow\n";
    return base::kExitUnhealthy;
  }
  if (status.phase() != "serving") {
    *context.err << "geminictl: the daemon is " << Printable(status.phase())
                 << " and takes no new sessions; wait for it to end, then start it again\n";
    return base::kExitUnhealthy;
  }
  return base::kExitOk;
}

}  // namespace geminid::ctl
