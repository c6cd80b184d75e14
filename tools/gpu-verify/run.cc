#include "tools/gpu-verify/run.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/exit_code.h"
#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/isolate.h"
#include "tools/gpu-verify/nvml.h"
#include "tools/gpu-verify/process.h"

namespace geminid::gpu_verify {
namespace {

// A probe's time beyond its rounds: starting the GPU, contexts, the last round.
constexpr double kMarginSeconds = 30;
constexpr double kDescribeSeconds = 60;
// The part of kMarginSeconds that the run reserves for the last round of its last probe.
constexpr double kLastRoundSeconds = 5;

std::string UtcNow() {
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// The driver's description as an outcome, to send from its process to ours.
Outcome Describe(const gpu::DriverApi& driver, int device) {
  const Gpu gpu(driver, device);
  const gpu::DriverApi& api = gpu.api();
  char name[256] = "";
  char bus_id[32] = "";
  size_t bytes = 0;
  int version = 0;
  gpu.Must(api.device_get_name(name, sizeof(name), gpu.device()), "cuDeviceGetName");
  gpu.Must(api.device_get_pci_bus_id(bus_id, sizeof(bus_id), gpu.device()), "cuDeviceGetPCIBusId");
  gpu.Must(api.device_total_mem(&bytes, gpu.device()), "cuDeviceTotalMem");
  gpu.Must(api.driver_get_version(&version), "cuDriverGetVersion");
  Outcome outcome = Pass(name);
  outcome.numbers = {{"bytes", static_cast<double>(bytes)}, {"version", version}};
  const std::optional<NvmlView> nvml = ReadNvml(bus_id);
  outcome.reason = nvml ? nvml->driver : "";
  const std::string persistence = nvml ? nvml->persistence : "unknown";
  outcome.numbers.emplace_back(persistence, 0);
  return outcome;
}

bool WriteJson(const std::string& path, const std::string& json) {
  if (path.empty()) return true;
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary);
    file << json;
    file.close();
    if (!file) return false;
  }
  return std::rename(temporary.c_str(), path.c_str()) == 0;
}

double SecondsOf(const Probe& probe, const Options& options) {
  return options.quick ? probe.quick_seconds : probe.seconds;
}

// 1, or the share of their times that probes from `index` on get if `left` is short for all.
double ShareOf(const Options& options, size_t index, double left) {
  double wanted = 0;
  for (size_t i = index; i < options.probes.size(); ++i) {
    wanted += SecondsOf(options.probes[i], options);
  }
  return std::clamp((left - kLastRoundSeconds) / wanted, 0.0, 1.0);
}

// Overwrites the last line on a terminal; elsewhere prints only what begins.
class Display {
 public:
  explicit Display(std::ostream& log) : log_(log), terminal_(isatty(STDERR_FILENO) != 0) {}
  void Begin(const std::string& text) {
    head_ = text;
    log_ << (terminal_ ? "\r\033[K" : "") << text << (terminal_ ? "" : "\n") << std::flush;
  }
  void Update(const std::string& text) {
    if (terminal_) log_ << "\r\033[K" << head_ << " " << text << std::flush;
  }
  void End() {
    if (terminal_) log_ << "\r\033[K" << std::flush;
  }

 private:
  std::ostream& log_;
  bool terminal_;
  std::string head_;
};

}  // namespace

bool DescribeMachine(const gpu::DriverApi& driver, int device, Machine* machine,
                     std::string* error) {
  const Outcome outcome = RunIsolated([&](const Progress&) { return Describe(driver, device); },
                                      kDescribeSeconds, [](const std::string&) {});
  if (outcome.verdict != Verdict::kPass) {
    *error = "the CUDA driver does not offer GPU " + std::to_string(device) + ": " + outcome.reason;
    return false;
  }
  machine->date = UtcNow();
  machine->gpu = outcome.figure;
  machine->driver = outcome.reason;
  machine->device_bytes = static_cast<uint64_t>(outcome.numbers[0].second);
  machine->cuda_version = static_cast<int>(outcome.numbers[1].second);
  machine->persistence = outcome.numbers[2].first;
  utsname system{};
  if (uname(&system) == 0) machine->kernel = system.release;
  machine->processors = sysconf(_SC_NPROCESSORS_ONLN);
  machine->available_host_bytes = AvailableHostBytes();
  return true;
}

int RunProbes(const gpu::DriverApi& driver, const Options& options, const Effort& effort,
              const Machine& machine, std::ostream& out, std::ostream& log) {
  const double deadline = Now() + options.limit_seconds;
  std::vector<Report> reports;
  Display display(log);
  bool failed = false;
  if (!WriteJson(options.json_path, Json(machine, reports))) {
    log << "cannot write " << options.json_path << "; choose another file\n";
    return base::kExitFailed;
  }
  for (const Probe& probe : options.probes) {
    const double begin = Now();
    const double left = deadline - begin;
    const double share = ShareOf(options, reports.size(), left);
    const double soft = share * SecondsOf(probe, options);
    const double limit = std::min(soft + std::max(kLastRoundSeconds, share * kMarginSeconds), left);
    Report report{probe.id, probe.question, {}, 0};
    if (limit <= 0) {
      report.outcome = Fail("", "not run: the time limit was reached");
    } else {
      display.Begin("[" + std::to_string(reports.size() + 1) + "/" +
                    std::to_string(options.probes.size()) + "] " + probe.id + " " + probe.question +
                    " (up to " + Number(limit, 0) + " s)");
      report.outcome = RunIsolated(
          [&](const Progress& progress) {
            return probe.run({driver, options.device, effort, begin + soft, progress});
          },
          limit, [&](const std::string& text) { display.Update(text); });
      display.End();
    }
    report.seconds = Now() - begin;
    failed |= report.outcome.verdict == Verdict::kFail;
    out << Line(report) << "\n" << std::flush;
    reports.push_back(std::move(report));
    if (!WriteJson(options.json_path, Json(machine, reports))) {
      log << "cannot write " << options.json_path
          << " any more; the file keeps its last contents\n";
      failed = true;
    }
  }
  return failed ? base::kExitUnhealthy : base::kExitOk;
}

}  // namespace geminid::gpu_verify
