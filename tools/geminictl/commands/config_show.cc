#include "tools/geminictl/commands/config_show.h"

#include "base/exit_code.h"
#include "base/status_macros.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/output/table.h"

namespace geminid::ctl {
namespace {

std::string Values(const v1::ShowConfigResponse& response, bool with_origins, const Style& style) {
  std::vector<Column> columns = {{"KEY"}, {"VALUE"}};
  if (with_origins) columns.push_back({"ORIGIN"});
  Table table(columns);
  for (const v1::ConfigOrigin& line : response.origins()) {
    std::vector<std::string> cells = {line.key(), line.value()};
    if (with_origins) cells.push_back(line.origin());
    table.AddRow(cells);
  }
  return table.Render(style);
}

}  // namespace

absl::StatusOr<int> RunConfigShow(const Context& context, bool with_origins) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::ShowConfigResponse response, client->ShowConfig());
  *context.out << (context.json ? JsonDocument({&response})
                                : Values(response, with_origins, context.style));
  return base::kExitOk;
}

}  // namespace geminid::ctl
