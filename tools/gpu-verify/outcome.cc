#include "tools/gpu-verify/outcome.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace geminid::gpu_verify {
namespace {

constexpr const char* kVerdicts[] = {"pass", "fail", "not applicable"};

const char* Name(Verdict verdict) { return kVerdicts[static_cast<int>(verdict)]; }

// The text on one line and in one field, without control characters.
std::string Flat(const std::string& text) {
  std::string flat = text;
  for (char& c : flat) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return flat;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : Flat(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string JsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string ProbeJson(const Report& report) {
  const Outcome& outcome = report.outcome;
  std::string json = "    {\"id\": " + Quoted(report.id) +
                     ", \"question\": " + Quoted(report.question) + ",\n     \"verdict\": \"" +
                     Name(outcome.verdict) + "\", \"figure\": " + Quoted(outcome.figure) +
                     ", \"reason\": " + Quoted(outcome.reason) +
                     ",\n     \"seconds\": " + JsonNumber(report.seconds) + ", \"numbers\": {";
  const char* separator = "";
  for (const auto& [key, value] : outcome.numbers) {
    json += separator + Quoted(key) + ": " + JsonNumber(value);
    separator = ", ";
  }
  return json + "}}";
}

}  // namespace

Outcome Pass(std::string figure) { return {Verdict::kPass, std::move(figure), "", {}}; }

Outcome Fail(std::string figure, std::string reason) {
  return {Verdict::kFail, std::move(figure), std::move(reason), {}};
}

Outcome NotApplicable(std::string reason) {
  return {Verdict::kNotApplicable, "", std::move(reason), {}};
}

Outcome Judge(bool holds, std::string figure, std::string reason) {
  return holds ? Pass(std::move(figure)) : Fail(std::move(figure), std::move(reason));
}

std::string Line(const Report& report) {
  std::string line = report.id + " " + report.question + ": ";
  if (!report.outcome.figure.empty()) line += report.outcome.figure + ", ";
  line += Name(report.outcome.verdict);
  if (!report.outcome.reason.empty()) line += " (" + report.outcome.reason + ")";
  return Flat(line);
}

std::string Json(const Machine& machine, const std::vector<Report>& reports) {
  std::string json =
      "{\n  \"program\": \"geminid-gpu-verify\",\n  \"format\": 1,\n  \"date\": " +
      Quoted(machine.date) + ",\n  \"gpu\": " + Quoted(machine.gpu) +
      ",\n  \"driver\": " + Quoted(machine.driver) +
      ",\n  \"cuda_version\": " + std::to_string(machine.cuda_version) +
      ",\n  \"device_bytes\": " + std::to_string(machine.device_bytes) +
      ",\n  \"persistence\": " + Quoted(machine.persistence) +
      ",\n  \"kernel\": " + Quoted(machine.kernel) +
      ",\n  \"processors\": " + std::to_string(machine.processors) +
      ",\n  \"available_host_bytes\": " + std::to_string(machine.available_host_bytes) +
      ",\n  \"quick\": " + (machine.quick ? "true" : "false") + ",\n  \"probes\": [\n";
  for (size_t i = 0; i < reports.size(); ++i) {
    json += ProbeJson(reports[i]) + (i + 1 < reports.size() ? ",\n" : "\n");
  }
  return json + "  ]\n}\n";
}

std::string Serialize(const Outcome& outcome) {
  std::string text = std::to_string(static_cast<int>(outcome.verdict)) + "\n" +
                     Flat(outcome.figure) + "\n" + Flat(outcome.reason) + "\n";
  for (const auto& [key, value] : outcome.numbers) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.17g", value);
    text += Flat(key) + "\n" + number + "\n";
  }
  return text + "end\n";
}

std::optional<Outcome> Deserialize(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  constexpr size_t kHead = 3;  // verdict, figure, reason
  if (lines.size() < kHead + 1 || lines.back() != "end" || (lines.size() - kHead) % 2 != 1) {
    return std::nullopt;
  }
  if (lines[0].size() != 1 || lines[0][0] < '0' || lines[0][0] > '2') return std::nullopt;
  Outcome outcome{static_cast<Verdict>(lines[0][0] - '0'), lines[1], lines[2], {}};
  for (size_t i = kHead; i + 1 < lines.size(); i += 2) {
    outcome.numbers.emplace_back(lines[i], std::strtod(lines[i + 1].c_str(), nullptr));
  }
  return outcome;
}

std::string Number(double value, int decimals) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string Bytes(double bytes) {
  constexpr double kMib = 1 << 20;
  const double mib = bytes / kMib;
  const bool large = std::fabs(mib) >= 1024;
  const double value = large ? mib / 1024 : mib;
  const int decimals = value == std::floor(value) ? 0 : 1;
  return Number(value, decimals) + (large ? " GiB" : " MiB");
}

std::string Seconds(double seconds) {
  if (seconds < 1e-3) return Number(seconds * 1e6, 1) + " us";
  if (seconds < 1) return Number(seconds * 1e3, 2) + " ms";
  return Number(seconds, 2) + " s";
}

}  // namespace geminid::gpu_verify
