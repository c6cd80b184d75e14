#include "tools/geminictl/commands/version.h"

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "daemon/service/entry/version.h"
#include "proto/shm/attach_messages.h"
#include "tools/geminictl/output/json_message.h"

namespace geminid::ctl {

std::string VersionLine() {
  return absl::StrCat("geminictl ", service::kVersion, " (protocol ", shm::kProtocolVersion, ")");
}

absl::StatusOr<int> RunVersion(const Context& context) {
  if (!context.json) {
    *context.out << VersionLine() << "\n";
    return base::kExitOk;
  }
  base::JsonWriter json;
  json.BeginObject();
  json.Key("schema_version").Value(kSchemaVersion);
  json.Key("version").Value(service::kVersion);
  json.Key("protocol_version").Value(uint64_t{shm::kProtocolVersion});
  json.EndObject();
  *context.out << json.text() << "\n";
  return base::kExitOk;
}

}  // namespace geminid::ctl
