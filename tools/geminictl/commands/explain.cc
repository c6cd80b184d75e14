#include "tools/geminictl/commands/explain.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"

namespace geminid::ctl {
namespace {

absl::StatusOr<uint64_t> OnlySession(DaemonClient* client, uint32_t chunk) {
  GEMINID_ASSIGN_OR_RETURN(const v1::ListSessionsResponse response, client->ListSessions());
  if (response.sessions_size() == 1) return response.sessions(0).session();
  if (response.sessions_size() == 0) {
    return absl::NotFoundError(
        absl::StrCat("there is no chunk ", chunk, ": no session is attached to the daemon"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "there are ", response.sessions_size(), " sessions; say which, as in ",
      response.sessions(0).session(), "/", chunk, "; 'geminictl ls sessions' lists them"));
}

}  // namespace

absl::StatusOr<ChunkName> ParseChunkName(const std::string& text) {
  ChunkName name;
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    GEMINID_ASSIGN_OR_RETURN(
        name.session, base::ParseCount("the session in SESSION/CHUNK", text.substr(0, slash), 1,
                                       std::numeric_limits<uint64_t>::max()));
  }
  const std::string chunk = slash == std::string::npos ? text : text.substr(slash + 1);
  GEMINID_ASSIGN_OR_RETURN(
      const uint64_t number,
      base::ParseCount("the chunk", chunk, 0, std::numeric_limits<uint32_t>::max()));
  name.chunk = static_cast<uint32_t>(number);
  return name;
}

absl::StatusOr<int> RunExplain(const Context& context, const ChunkName& name) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  uint64_t session = 0;
  if (name.session.has_value()) {
    session = *name.session;
  } else {
    GEMINID_ASSIGN_OR_RETURN(session, OnlySession(client.get(), name.chunk));
  }
  const absl::StatusOr<v1::ExplainChunkResponse> response =
      client->ExplainChunk(session, name.chunk);
  if (absl::IsNotFound(response.status())) {
    return absl::NotFoundError(absl::StrCat(std::string(response.status().message()),
                                            "; 'geminictl ls chunks' lists the chunks"));
  }
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << JsonDocument({&*response});
    return base::kExitOk;
  }
  for (const std::string& line : response->lines()) *context.out << Printable(line) << "\n";
  return base::kExitOk;
}

}  // namespace geminid::ctl
