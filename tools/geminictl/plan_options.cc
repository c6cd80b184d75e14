#include "tools/geminictl/plan_options.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "tools/forecast/forecast.h"
#include "tools/forecast/hf_config.h"

namespace geminid::ctl {
namespace {

constexpr std::uint64_t kCountMax = (std::uint64_t{1} << 32) - 1;
constexpr double kRateMax = 1e24;
constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;

absl::Status Wrong(const char* flag, const std::string& text, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is '", text, "'; ", what));
}

// Each reads a flag into *value if it is given.

template <typename Integer>
absl::Status ReadCount(const char* flag, const std::string& text, Integer* value) {
  if (text.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::uint64_t count, base::ParseCount(flag, text, 1, kCountMax));
  *value = static_cast<Integer>(count);
  return absl::OkStatus();
}

absl::Status ReadNumber(const char* flag, const std::string& text, double most, double* value) {
  if (text.empty()) return absl::OkStatus();
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !std::isfinite(number) || number <= 0 || number > most) {
    return Wrong(flag, text, absl::StrCat("it must be a number above 0 and at most ", most));
  }
  *value = number;
  return absl::OkStatus();
}

absl::Status Named(const char* flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

absl::Status ReadBytes(const char* flag, const std::string& text, std::uint64_t* value) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<std::uint64_t> bytes = base::ParseBytes(text);
  if (!bytes.ok()) return Named(flag, bytes.status());
  *value = *bytes;
  return absl::OkStatus();
}

absl::Status ReadRate(const char* flag, const std::string& text, double* value) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<std::uint64_t> rate = base::ParseBytesPerSecond(text);
  if (!rate.ok()) return Named(flag, rate.status());
  *value = static_cast<double>(*rate);
  return absl::OkStatus();
}

// A member of the family, by its shape or by its size.
absl::StatusOr<forecast::Model> Member(const forecast::Family& family, const PlanFlags& flags) {
  if (!flags.parameters.empty()) {
    double parameters = 0;
    GEMINID_RETURN_IF_ERROR(ReadNumber("--parameters", flags.parameters, kRateMax, &parameters));
    constexpr double kLargest = 1e18;
    return forecast::MemberOfSize(family,
                                  static_cast<std::uint64_t>(std::min(parameters, kLargest)));
  }
  if (flags.layers.empty() || flags.hidden.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model ", family.name,
        " is a family; say which member by --parameters, or by --layers and --hidden, or ask for "
        "the --largest"));
  }
  std::uint64_t layers = 0, hidden = 0, heads = 0;
  GEMINID_RETURN_IF_ERROR(ReadCount("--layers", flags.layers, &layers));
  GEMINID_RETURN_IF_ERROR(ReadCount("--hidden", flags.hidden, &hidden));
  GEMINID_RETURN_IF_ERROR(ReadCount("--heads", flags.heads, &heads));
  return forecast::MakeMember(family, layers, hidden, heads);
}

absl::Status ReadModel(const PlanFlags& flags, PlanRequest* request) {
  if (!flags.config.empty()) {
    const absl::StatusOr<std::string> json = base::ReadFile(flags.config, kConfigBytesMax);
    if (!json.ok()) return Named("--config", json.status());
    absl::StatusOr<forecast::Model> model = forecast::ModelFromHuggingFace(*json);
    if (!model.ok()) return Named(absl::StrCat("--config ", flags.config).c_str(), model.status());
    request->model = *std::move(model);
    return absl::OkStatus();
  }
  const forecast::Family* family = forecast::FindFamily(flags.model);
  if (flags.largest) {
    if (family == nullptr) {
      return Wrong("--model", flags.model, "the --largest is sought in a family, as in gpt2-like");
    }
    request->family = family;
    return absl::OkStatus();
  }
  absl::StatusOr<forecast::Model> model =
      family != nullptr ? Member(*family, flags) : forecast::FindModel(flags.model);
  if (!model.ok()) return absl::InvalidArgumentError(std::string(model.status().message()));
  request->model = *std::move(model);
  return absl::OkStatus();
}

absl::Status ReadHardware(const PlanFlags& flags, forecast::Job* job) {
  if (flags.hardware.empty()) {
    return absl::InvalidArgumentError(
        "say on what: --hardware NAME; 'geminictl plan --list-hardware' lists the names");
  }
  const absl::StatusOr<forecast::Hardware> found = forecast::FindHardware(flags.hardware);
  if (!found.ok()) return Named("--hardware", found.status());
  job->hardware = *found;
  forecast::Hardware& hardware = job->hardware;
  if (!flags.device_memory.empty()) {
    // What is said is what may be used.
    hardware.reserved_bytes = 0;
    GEMINID_RETURN_IF_ERROR(
        ReadBytes("--device-memory", flags.device_memory, &hardware.device_bytes));
  }
  GEMINID_RETURN_IF_ERROR(ReadNumber("--compute", flags.compute, kRateMax, &hardware.flops));
  GEMINID_RETURN_IF_ERROR(ReadNumber("--achieved", flags.achieved, 1, &hardware.achieved_share));
  struct Rate {
    const char* flag;
    const std::string& text;
    double* value;
  };
  for (const Rate& rate : {Rate{"--link-up", flags.link_up, &hardware.up_bytes_per_second},
                           Rate{"--link-down", flags.link_down, &hardware.down_bytes_per_second},
                           Rate{"--link-both", flags.link_both, &hardware.both_bytes_per_second},
                           Rate{"--peer", flags.peer, &hardware.peer_bytes_per_second},
                           Rate{"--network", flags.network, &hardware.network_bytes_per_second},
                           Rate{"--device-bandwidth", flags.device_bandwidth,
                                &hardware.device_memory_bytes_per_second},
                           Rate{"--dram", flags.dram, &hardware.host_memory_bytes_per_second}}) {
    GEMINID_RETURN_IF_ERROR(ReadRate(rate.flag, rate.text, rate.value));
  }
  return absl::OkStatus();
}

absl::Status ReadMemory(const PlanFlags& flags, PlanRequest* request) {
  forecast::Job& job = request->job;
  job.host_bytes = forecast::kMostHostBytes;
  request->host_is_given = !flags.host_memory.empty();
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
  GEMINID_RETURN_IF_ERROR(
      ReadNumber("--cpu-update-share", flags.cpu_update_share, 1, &job.cpu_update_share));
  return absl::OkStatus();
}

absl::Status ReadJob(const PlanFlags& flags, PlanRequest* request) {
  forecast::Job& job = request->job;
  job.batch.sequences = 1;
  job.batch.sequence_length = request->model.has_value()   ? request->model->context
                              : request->family != nullptr ? request->family->base.context
                                                           : 1;
  GEMINID_RETURN_IF_ERROR(ReadCount("--ranks", flags.ranks, &job.ranks));
  GEMINID_RETURN_IF_ERROR(ReadCount("--nodes", flags.nodes, &job.nodes));
  GEMINID_RETURN_IF_ERROR(ReadCount("--batch", flags.batch, &job.batch.sequences));
  GEMINID_RETURN_IF_ERROR(ReadCount("--sequence", flags.sequence, &job.batch.sequence_length));
  if (!flags.optimizer.empty()) {
    GEMINID_ASSIGN_OR_RETURN(job.optimizer, forecast::FindOptimizer(flags.optimizer));
  }
  if (flags.activations == "recompute") {
    job.activations = forecast::Activations::kRecompute;
  } else if (!flags.activations.empty() && flags.activations != "planned") {
    return Wrong("--activations", flags.activations, "it must be planned or recompute");
  }
  return absl::OkStatus();
}

// What a trace says already cannot be said again.
absl::Status ReadTrace(const PlanFlags& flags, PlanRequest* request) {
  struct Flag {
    const char* name;
    const std::string& text;
  };
  for (const Flag& flag :
       {Flag{"--ranks", flags.ranks}, Flag{"--nodes", flags.nodes}, Flag{"--batch", flags.batch},
        Flag{"--sequence", flags.sequence}, Flag{"--activations", flags.activations},
        Flag{"--compute", flags.compute}, Flag{"--achieved", flags.achieved}}) {
    if (!flag.text.empty()) return Wrong(flag.name, flag.text, "the trace says it; leave it out");
  }
  GEMINID_ASSIGN_OR_RETURN(const v1::TraceFile file, forecast::LoadTraceFile(flags.trace));
  absl::StatusOr<forecast::RecordedTrace> trace = forecast::FromMessage(file);
  if (!trace.ok()) return Named(flags.trace.c_str(), trace.status());
  if (trace->world_size % trace->ranks_on_node != 0) {
    return Wrong("--trace", flags.trace, "its nodes have different numbers of ranks");
  }
  forecast::Job& job = request->job;
  job.ranks = trace->world_size;
  job.nodes = trace->world_size / trace->ranks_on_node;
  job.batch = {.sequences = 1, .sequence_length = std::max<std::uint64_t>(trace->tokens, 1)};
  // What was measured is better than what a table says, unless told otherwise.
  const planner::LinkModel& link = trace->trace.link;
  if (flags.link_up.empty()) job.hardware.up_bytes_per_second = link.h2d_bytes_per_second;
  if (flags.link_down.empty()) job.hardware.down_bytes_per_second = link.d2h_bytes_per_second;
  if (flags.device_memory.empty()) {
    job.hardware.device_bytes = trace->trace.arena_bytes;
    job.hardware.reserved_bytes = 0;
  }
  request->trace = *std::move(trace);
  return absl::OkStatus();
}

}  // namespace

void AddPlanFlags(CLI::App* app, PlanFlags* flags) {
  const auto add = [&](const char* name, std::string* value, const char* help) {
    app->add_option(name, *value, help);
  };
  add("--model", &flags->model, "A published model, or a family; see --list-models");
  add("--config", &flags->config, "Instead: a Hugging Face config.json");
  add("--trace", &flags->trace, "Instead: a file of 'geminictl trace save'");
  add("--parameters", &flags->parameters, "Of a family: the member nearest to, as in 18e9");
  add("--layers", &flags->layers, "Of a family: the member with so many layers ...");
  add("--hidden", &flags->hidden, "... of this width");
  add("--heads", &flags->heads, "... and heads; otherwise of 128 columns");
  app->add_flag("--largest", flags->largest, "Of a family: the largest member that fits");
  add("--hardware", &flags->hardware, "The accelerator and its host; see --list-hardware");
  add("--ranks", &flags->ranks, "Accelerators in all; otherwise 1");
  add("--nodes", &flags->nodes, "Hosts that they are in; otherwise 1");
  add("--device-memory", &flags->device_memory, "Usable on each accelerator, as in 22GiB");
  add("--host-memory", &flags->host_memory, "For training on each node; otherwise unlimited");
  add("--disk", &flags->disk, "For training on each node; otherwise none");
  add("--batch", &flags->batch, "Sequences per rank and step; otherwise 1");
  add("--sequence", &flags->sequence, "Tokens per sequence; otherwise the model's context");
  add("--optimizer", &flags->optimizer,
      "adamw (otherwise), adam, lamb, lars, lion, adagrad, sgd-momentum or sgd");
  add("--activations", &flags->activations,
      "planned (otherwise): kept, offloaded or recomputed as it pays; recompute: always");
  add("--link-up", &flags->link_up, "Host to device, as in 26GB/s");
  add("--link-down", &flags->link_down, "Device to host");
  add("--link-both", &flags->link_both, "Both directions together");
  add("--peer", &flags->peer, "Between devices of a node, each way");
  add("--network", &flags->network, "Between nodes, all adapters of one together, each way");
  add("--compute", &flags->compute, "Operations per second of a device, as in 312e12");
  add("--achieved", &flags->achieved, "The share of that which training reaches, as in 0.5");
  add("--device-bandwidth", &flags->device_bandwidth, "Of the device's memory");
  add("--dram", &flags->dram, "Of the host's memory, reads and writes together");
  add("--cpu-update-share", &flags->cpu_update_share,
      "The share of --dram that the CPU optimizer reaches; otherwise 0.8");
  add("--disk-read", &flags->disk_read, "Of all disks of a node, as in 6GB/s");
  add("--disk-write", &flags->disk_write, "Of all disks of a node");
  add("--disk-endurance", &flags->disk_endurance, "What may be written to them in all");
  add("--save-trace", &flags->save_trace, "Writes the model's trace to this file too");
  app->add_flag("--list-models", flags->list_models, "Lists models and families, and ends");
  app->add_flag("--list-hardware", flags->list_hardware, "Lists the hardware known, and ends");
}

absl::StatusOr<PlanRequest> ParsePlanFlags(const PlanFlags& flags) {
  const int subjects = (flags.model.empty() ? 0 : 1) + (flags.config.empty() ? 0 : 1) +
                       (flags.trace.empty() ? 0 : 1);
  if (subjects != 1) {
    return absl::InvalidArgumentError(
        "say what to plan by one of --model, --config and --trace; 'geminictl plan --list-models' "
        "lists the models");
  }
  PlanRequest request;
  GEMINID_RETURN_IF_ERROR(ReadHardware(flags, &request.job));
  GEMINID_RETURN_IF_ERROR(ReadMemory(flags, &request));
  if (flags.trace.empty()) {
    GEMINID_RETURN_IF_ERROR(ReadModel(flags, &request));
    GEMINID_RETURN_IF_ERROR(ReadJob(flags, &request));
  } else {
    GEMINID_RETURN_IF_ERROR(ReadTrace(flags, &request));
    if (!flags.optimizer.empty()) {
      GEMINID_ASSIGN_OR_RETURN(request.job.optimizer, forecast::FindOptimizer(flags.optimizer));
    }
  }
  GEMINID_RETURN_IF_ERROR(forecast::Validate(request.job));
  return request;
}

}  // namespace geminid::ctl
