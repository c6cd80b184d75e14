#include "tools/geminictl/plan/plan_hardware.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "base/status_macros.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/plan/plan_numbers.h"
#include "training/forecast/forecast.h"

namespace geminid::ctl {
namespace {

using base::FormatBytes;
using forecast::Hardware;

// A flag on which a plan's time depends, but not its bytes.
struct RateFlag {
  const char* name;
  const std::string& text;
  double* value;
  bool of_link = false;  // a trace has it
  bool needed = true;    // without it times are unknown
};

std::vector<RateFlag> BytesPerSecondFlags(const PlanFlags& flags, const forecast::Job& job,
                                          Hardware* hardware) {
  return {{"--link-up", flags.link_up, &hardware->up_bytes_per_second, true},
          {"--link-down", flags.link_down, &hardware->down_bytes_per_second, true},
          {"--link-both", flags.link_both, &hardware->both_bytes_per_second, true, false},
          {"--uplink", flags.uplink, &hardware->node_link_bytes_per_second, true, false},
          {"--peer", flags.peer, &hardware->peer_bytes_per_second, false, job.ranks > job.nodes},
          {"--network", flags.network, &hardware->network_bytes_per_second, false, job.nodes > 1},
          {"--device-bandwidth", flags.device_bandwidth, &hardware->device_memory_bytes_per_second},
          {"--dram", flags.dram, &hardware->host_memory_bytes_per_second}};
}

// If a host device is the only device, half of the memory is its own, as in the daemon.
absl::Status TakeHostDevice(const PlanFlags& flags, const ThisMachine& machine,
                            PlanRequest* request) {
  if (!flags.host_memory.empty() || machine.memory_bytes == 0) {
    return absl::InvalidArgumentError(
        "this machine has no accelerator that could be planned for: say what a device has by "
        "--device-memory, or which it is by --hardware; 'geminictl plan --list-hardware' lists the "
        "names");
  }
  Hardware& hardware = request->job.hardware;
  hardware.name = kHostDeviceName;
  hardware.device_bytes = machine.memory_bytes / 2;
  request->job.host_bytes = machine.memory_bytes - hardware.device_bytes;
  request->host_is_given = true;
  request->notes.push_back(absl::StrCat(
      "Neither memory nor --hardware is given, so this machine is planned for: it has no "
      "accelerator, and half of its ",
      FormatBytes(machine.memory_bytes), " is taken for a host device."));
  return absl::OkStatus();
}

absl::Status TakeThisMachine(const PlanFlags& flags, const ThisMachine& machine,
                             PlanRequest* request) {
  if (machine.accelerators.empty()) return TakeHostDevice(flags, machine, request);
  const std::string& name = machine.accelerators.front();
  const Hardware* const row = forecast::HardwareOfDriverName(name);
  if (row == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this machine's accelerator, ", Printable(name),
        ", is not in the table: say what it has by --device-memory, or which row is nearest by "
        "--hardware; 'geminictl plan --list-hardware' lists them"));
  }
  request->job.hardware = *row;
  std::string note =
      absl::StrCat("No device is given, so those of this machine are planned for, ",
                   machine.accelerators.size(), " x ", row->name, "; --ranks says how many");
  if (flags.host_memory.empty() && machine.memory_bytes > 0) {
    request->job.host_bytes = machine.memory_bytes;
    request->host_is_given = true;
    absl::StrAppend(&note, ", with its ", FormatBytes(machine.memory_bytes), " of memory");
  }
  request->notes.push_back(absl::StrCat(note, "."));
  return absl::OkStatus();
}

// Chooses everything that no single flag sets. Returns whether rates are known.
absl::StatusOr<bool> ChooseHardware(const PlanFlags& flags, const ThisMachine& machine,
                                    PlanRequest* request) {
  if (!flags.hardware.empty()) {
    const absl::StatusOr<Hardware> found = forecast::FindHardware(flags.hardware);
    if (!found.ok()) return NamedFlag("--hardware", found.status());
    request->job.hardware = *found;
    return true;
  }
  Hardware& hardware = request->job.hardware;
  hardware = forecast::HardwareOfUnknownRates();
  if (request->trace.has_value()) {
    hardware.name = "recorded device";
    return false;
  }
  if (!flags.device_memory.empty()) {
    hardware.name = "device";
    return false;
  }
  GEMINID_RETURN_IF_ERROR(TakeThisMachine(flags, machine, request));
  return !machine.accelerators.empty();
}

std::string LinkInWords(const forecast::RecordedTrace& trace) {
  const planner::LinkModel& link = trace.trace.link;
  std::string text =
      absl::StrFormat("%s up, %s down, %.3g us a copy", FormatRate(link.h2d_bytes_per_second),
                      FormatRate(link.d2h_bytes_per_second), link.latency_seconds * 1e6);
  if (link.both_directions_share < 1) {
    absl::StrAppendFormat(&text, ", %.3g of that each while both run", link.both_directions_share);
  }
  if (link.uplink_bytes_per_second > 0) {
    absl::StrAppend(&text, ", ", FormatRate(link.uplink_bytes_per_second), " for ",
                    base::Counted(link.ranks_per_uplink, "rank"), " together");
  }
  return text;
}

// The link and the memory of the trace where no flag says otherwise.
void TakeTrace(const PlanFlags& flags, PlanRequest* request) {
  const forecast::RecordedTrace& trace = *request->trace;
  Hardware& hardware = request->job.hardware;
  forecast::UseMeasuredLink(trace, &hardware);
  if (flags.device_memory.empty()) {
    hardware.device_bytes = trace.trace.arena_bytes;
    hardware.reserved_bytes = 0;
  }
  std::vector<std::string> overridden;
  for (const RateFlag& rate : BytesPerSecondFlags(flags, request->job, &hardware)) {
    if (rate.of_link && !rate.text.empty()) overridden.push_back(rate.name);
  }
  if (!flags.link_latency.empty()) overridden.push_back("--link-latency");
  request->notes.push_back(
      absl::StrCat("The link is the one that was measured (", LinkInWords(trace), ")",
                   overridden.empty() ? "" : ", but for ", absl::StrJoin(overridden, ", "), "."));
}

absl::Status ReadRates(const PlanFlags& flags, bool rates_are_known, PlanRequest* request) {
  Hardware& hardware = request->job.hardware;
  const bool trace = request->trace.has_value();
  const auto note_missing = [&](const RateFlag& rate) {
    if (rates_are_known || !rate.needed || !rate.text.empty() || (trace && rate.of_link)) return;
    request->missing_rates.push_back(rate.name);
  };
  for (const RateFlag& rate : BytesPerSecondFlags(flags, request->job, &hardware)) {
    GEMINID_RETURN_IF_ERROR(ReadRate(rate.name, rate.text, rate.value));
    note_missing(rate);
  }
  GEMINID_RETURN_IF_ERROR(
      ReadLatency("--link-latency", flags.link_latency, &hardware.copy_latency_seconds));
  GEMINID_RETURN_IF_ERROR(
      ReadLatency("--peer-latency", flags.peer_latency, &hardware.peer_message_seconds));
  GEMINID_RETURN_IF_ERROR(
      ReadLatency("--network-latency", flags.network_latency, &hardware.network_message_seconds));
  GEMINID_RETURN_IF_ERROR(ReadNumber("--compute", flags.compute, kRateMax, &hardware.flops));
  GEMINID_RETURN_IF_ERROR(ReadNumber("--achieved", flags.achieved, 1, &hardware.achieved_share));
  // A trace has the times of its operators.
  if (!trace) {
    note_missing({"--compute", flags.compute, &hardware.flops});
    note_missing({"--achieved", flags.achieved, &hardware.achieved_share});
  }
  // If both directions share a rate, they still share it when a flag changes one direction.
  if (trace && flags.link_both.empty() && hardware.both_bytes_per_second > 0) {
    hardware.both_bytes_per_second =
        request->trace->trace.link.both_directions_share *
        (hardware.up_bytes_per_second + hardware.down_bytes_per_second);
  }
  return absl::OkStatus();
}

absl::Status ReadMemory(const PlanFlags& flags, PlanRequest* request) {
  forecast::Job& job = request->job;
  if (!flags.device_memory.empty()) {
    job.hardware.reserved_bytes = 0;  // the flag gives usable bytes
    GEMINID_RETURN_IF_ERROR(
        ReadBytes("--device-memory", flags.device_memory, &job.hardware.device_bytes));
  }
  if (!flags.host_memory.empty()) request->host_is_given = true;
  GEMINID_RETURN_IF_ERROR(ReadBytes("--host-memory", flags.host_memory, &job.host_bytes));
  GEMINID_RETURN_IF_ERROR(ReadBytes("--disk", flags.disk, &job.disk_bytes));
  GEMINID_RETURN_IF_ERROR(
      ReadRate("--disk-read", flags.disk_read, &job.disk_read_bytes_per_second));
  GEMINID_RETURN_IF_ERROR(
      ReadRate("--disk-write", flags.disk_write, &job.disk_write_bytes_per_second));
  std::uint64_t endurance = 0;
  GEMINID_RETURN_IF_ERROR(ReadBytes("--disk-endurance", flags.disk_endurance, &endurance));
  job.disk_endurance_bytes = static_cast<double>(endurance);
  if (job.disk_bytes > 0 && (flags.disk_read.empty() || flags.disk_write.empty())) {
    return absl::InvalidArgumentError(
        "--disk needs its speed: --disk-read and --disk-write, as in 6GB/s");
  }
  return ReadNumber("--cpu-update-share", flags.cpu_update_share, 1, &job.cpu_update_share);
}

}  // namespace

absl::Status ReadPlanHardware(const PlanFlags& flags, const ThisMachine& machine,
                              PlanRequest* request) {
  request->job.host_bytes = forecast::kMostHostBytes;
  GEMINID_ASSIGN_OR_RETURN(const bool rates_are_known, ChooseHardware(flags, machine, request));
  if (request->trace.has_value()) TakeTrace(flags, request);
  GEMINID_RETURN_IF_ERROR(ReadRates(flags, rates_are_known, request));
  return ReadMemory(flags, request);
}

}  // namespace geminid::ctl
