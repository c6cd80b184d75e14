// A probe's outcome, and its forms: one line for people, JSON for machines. Pure.
#ifndef GEMINID_TOOLS_GPU_VERIFY_OUTCOME_H_
#define GEMINID_TOOLS_GPU_VERIFY_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace geminid::gpu_verify {

enum class Verdict { kPass, kFail, kNotApplicable };

struct Outcome {
  Verdict verdict = Verdict::kFail;
  std::string figure;                                   // the measurement in words; may be empty
  std::string reason;                                   // why the verdict is not pass
  std::vector<std::pair<std::string, double>> numbers;  // the same for programs, units in the keys
};

Outcome Pass(std::string figure);
Outcome Fail(std::string figure, std::string reason);
Outcome NotApplicable(std::string reason);
// Pass if `holds`, else fail with `reason`.
Outcome Judge(bool holds, std::string figure, std::string reason);

struct Report {
  std::string id;
  std::string question;
  Outcome outcome;
  double seconds = 0;
};

// The machine on which the run took place.
struct Machine {
  std::string date;  // ISO 8601, UTC
  std::string gpu;
  std::string driver;    // NVML's, such as 550.54.15; empty without NVML
  int cuda_version = 0;  // the driver's, major x 1000 + minor x 10
  uint64_t device_bytes = 0;
  std::string persistence;  // on, off or unknown
  std::string kernel;       // of the operating system
  long processors = 0;
  uint64_t available_host_bytes = 0;
  bool quick = false;
};

// `ID question: figure, pass|fail|not applicable (reason)`
std::string Line(const Report& report);
// One object, format 1: the machine and an array of probes in the order given.
std::string Json(const Machine& machine, const std::vector<Report>& reports);

// Text and back, for the way from the probe's process; nullopt if the text is cut off.
std::string Serialize(const Outcome& outcome);
std::optional<Outcome> Deserialize(const std::string& text);

std::string Bytes(double bytes);      // 256 MiB, 1.5 GiB
std::string Seconds(double seconds);  // 12.3 us, 4.56 ms, 1.23 s
std::string Number(double value, int decimals);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_OUTCOME_H_
