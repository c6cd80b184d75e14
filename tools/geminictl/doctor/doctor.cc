#include "tools/geminictl/doctor/doctor.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "daemon/service/entry/version.h"
#include "tools/geminictl/doctor/checks.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"

namespace geminid::ctl {
namespace {

constexpr Verdict kVerdicts[] = {Verdict::kPass, Verdict::kWarn, Verdict::kFail, Verdict::kSkip};
// Longest id, and the gap after it.
constexpr size_t kIdWidth = 21;

using Counts = std::map<Verdict, uint64_t>;

Color ColorOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return Color::kGreen;
    case Verdict::kWarn:
      return Color::kYellow;
    case Verdict::kFail:
      return Color::kRed;
    case Verdict::kSkip:
      break;
  }
  return Color::kDim;
}

std::string Describe(const std::vector<Check>& checks, const Counts& counts, const Style& style) {
  std::string text;
  for (const Check& check : checks) {
    const std::string space(kIdWidth - std::min(kIdWidth, check.id.size()), ' ');
    absl::StrAppend(&text, Paint(Name(check.verdict), ColorOf(check.verdict), style), "  ",
                    check.id, space, Printable(check.found), "\n");
    if (!check.fix.empty()) absl::StrAppend(&text, "      fix: ", Printable(check.fix), "\n");
  }
  const char* separator = "\n";
  for (const Verdict verdict : kVerdicts) {
    const auto count = counts.find(verdict);
    absl::StrAppend(&text, separator, count == counts.end() ? 0 : count->second, " ",
                    Name(verdict));
    separator = ", ";
  }
  return text + "\n";
}

std::string Document(const std::vector<Check>& checks, const Counts& counts,
                     const std::string& socket) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("schema_version").Value(kSchemaVersion);
  json.Key("version").Value(service::kVersion);
  json.Key("socket").Value(socket);
  json.Key("checks").BeginArray();
  for (const Check& check : checks) {
    json.BeginObject();
    json.Key("id").Value(check.id);
    json.Key("verdict").Value(Name(check.verdict));
    json.Key("found").Value(check.found);
    json.Key("fix").Value(check.fix);
    json.EndObject();
  }
  json.EndArray();
  for (const Verdict verdict : kVerdicts) {
    const auto count = counts.find(verdict);
    json.Key(Name(verdict)).Value(count == counts.end() ? uint64_t{0} : count->second);
  }
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace

absl::StatusOr<int> RunDoctor(const Context& context) {
  const MachineFindings machine = ReadMachineFindings();
  const SocketFindings socket = ReadSocketFindings(context.socket, context.timeout);
  std::vector<Check> checks = JudgeMachine(machine);
  const std::vector<Check> of_daemon = JudgeDaemon(socket, machine, service::kVersion);
  checks.insert(checks.end(), of_daemon.begin(), of_daemon.end());
  Counts counts;
  for (const Check& check : checks) ++counts[check.verdict];
  *context.out << (context.json ? Document(checks, counts, context.socket)
                                : Describe(checks, counts, context.style));
  return counts[Verdict::kFail] > 0 ? base::kExitUnhealthy : base::kExitOk;
}

}  // namespace geminid::ctl
