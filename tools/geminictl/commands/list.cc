#include "tools/geminictl/commands/list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "proto/shm/lease.h"
#include "proto/shm/types.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/account.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/output/table.h"

namespace geminid::ctl {
namespace {

using ClientPtr = std::unique_ptr<DaemonClient>;

std::string StateOf(const v1::SessionInfo& session) {
  if (session.kept_seconds_left() <= 0) return session.state();
  return absl::StrCat(session.state(), " for ", FormatDuration(session.kept_seconds_left()));
}

std::string Sessions(const v1::ListSessionsResponse& response, const Style& style) {
  Table table({{"SESSION", Align::kRight},
               {"JOB"},
               {"RANK", Align::kRight},
               {"PID", Align::kRight},
               {"TENANT"},
               {"STATE"},
               {"CHUNKS", Align::kRight},
               {"HOST", Align::kRight},
               {"DEVICE", Align::kRight},
               {"ARENA", Align::kRight},
               {"ARENA_IN_USE", Align::kRight},
               {"DISK", Align::kRight},
               {"STEP", Align::kRight},
               {"ATTACHED", Align::kRight},
               {"CLIENT"}});
  for (const v1::SessionInfo& session : response.sessions()) {
    table.AddRow({absl::StrCat(session.session()), session.job(),
                  absl::StrCat(session.rank(), "/", session.world_size()),
                  absl::StrCat(session.pid()), session.tenant(), StateOf(session),
                  absl::StrCat(session.chunks()), base::FormatBytes(session.host_bytes()),
                  absl::StrCat(session.device()), base::FormatBytes(session.device_bytes()),
                  base::FormatBytes(session.device_in_use_bytes()),
                  base::FormatBytes(session.disk_file_bytes()), absl::StrCat(session.step()),
                  FormatDuration(session.attached_seconds()), session.client()});
  }
  return table.Render(style);
}

std::string Pools(const v1::ListPoolsResponse& response, const Style& style) {
  Table table({{"TIER"},
               {"POOL", Align::kRight},
               {"SESSION", Align::kRight},
               {"TENANT"},
               {"BYTES", Align::kRight},
               {"IN_USE", Align::kRight},
               {"NUMA_NODE", Align::kRight},
               {"HUGE_PAGES"},
               {"POPULATED_IN", Align::kRight}});
  for (const v1::PoolInfo& pool : response.pools()) {
    table.AddRow({AccountName(pool), absl::StrCat(pool.pool()), absl::StrCat(pool.session()),
                  pool.tenant(), base::FormatBytes(pool.bytes()),
                  base::FormatBytes(pool.in_use_bytes()),
                  pool.numa_node() < 0 ? "" : absl::StrCat(pool.numa_node()),
                  pool.huge_pages() ? "yes" : "no", FormatDuration(pool.populate_seconds())});
  }
  return table.Render(style);
}

std::string Chunks(const v1::ListChunksResponse& response, const Style& style) {
  Table table({{"CHUNK"},
               {"KIND"},
               {"BYTES", Align::kRight},
               {"STATE"},
               {"WHERE"},
               {"LEASED"},
               {"DIRTY"},
               {"LOADS", Align::kRight},
               {"DROPS", Align::kRight},
               {"NAME"}});
  for (const v1::ChunkInfo& chunk : response.chunks()) {
    table.AddRow({absl::StrCat(chunk.session(), "/", chunk.chunk()),
                  shm::Name(static_cast<shm::ChunkKind>(chunk.kind())),
                  base::FormatBytes(chunk.bytes()), chunk.state(), WhereIs(chunk),
                  chunk.leased() ? "yes" : "no", chunk.dirty() ? "yes" : "no",
                  absl::StrCat(chunk.loads()), absl::StrCat(chunk.drops()), chunk.name()});
  }
  return table.Render(style);
}

absl::Status CheckSession(DaemonClient* client, uint64_t session) {
  GEMINID_ASSIGN_OR_RETURN(const v1::ListSessionsResponse response, client->ListSessions());
  const bool found =
      std::any_of(response.sessions().begin(), response.sessions().end(),
                  [session](const v1::SessionInfo& info) { return info.session() == session; });
  if (found) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no session ", session,
                                          "; 'geminictl ls sessions' lists the sessions"));
}

}  // namespace

std::string WhereIs(const v1::ChunkInfo& chunk) {
  const bool has_home = chunk.pool() != 0;
  const std::string& copy = chunk.residency();
  if (copy == shm::Name(shm::Residency::kNone) || copy == shm::Name(shm::Residency::kAbsent)) {
    return has_home ? "on host" : "not made";
  }
  const std::string device = copy == shm::Name(shm::Residency::kResident)  ? "on device"
                             : copy == shm::Name(shm::Residency::kFilling) ? "loading to device"
                                                                           : "evicting from device";
  return has_home ? absl::StrCat("on host, ", device) : device;
}

absl::StatusOr<int> RunListSessions(const Context& context) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::ListSessionsResponse response, client->ListSessions());
  *context.out << (context.json ? JsonDocument({&response}) : Sessions(response, context.style));
  return base::kExitOk;
}

absl::StatusOr<int> RunListPools(const Context& context) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::ListPoolsResponse response, client->ListPools());
  *context.out << (context.json ? JsonDocument({&response}) : Pools(response, context.style));
  return base::kExitOk;
}

absl::StatusOr<int> RunListChunks(const Context& context, const ListChunksOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  if (options.session != 0) {
    GEMINID_RETURN_IF_ERROR(CheckSession(client.get(), options.session));
  }
  GEMINID_ASSIGN_OR_RETURN(const v1::ListChunksResponse response,
                           client->ListChunks(options.session, options.limit));
  *context.out << (context.json ? JsonDocument({&response}) : Chunks(response, context.style));
  const auto shown = static_cast<uint64_t>(response.chunks_size());
  if (shown < response.total()) {
    *context.err << "geminictl: these are " << shown << " of " << response.total()
                 << " chunks; --limit shows more, --session only those of one session\n";
  }
  return base::kExitOk;
}

}  // namespace geminid::ctl
