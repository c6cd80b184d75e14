#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/geminictl/plan/plan_options.h"

namespace geminid::ctl {

namespace {

// Rates, latencies and endurance of the hardware.
void AddRates(CLI::App* app, PlanFlags* flags) {
  const auto add = [&](const char* name, std::string* value, const char* help) {
    app->add_option(name, *value, help);
  };
  add("--link-up", &flags->link_up, "Rate from host to device, as in 26GB/s");
  add("--link-down", &flags->link_down, "Rate from device to host");
  add("--link-both", &flags->link_both, "Rate of both directions together");
  add("--link-latency", &flags->link_latency,
      "Time of a copy beside that of its bytes, as in 10us");
  add("--uplink", &flags->uplink, "Rate of all devices of a node together, in one direction");
  add("--peer", &flags->peer, "Rate between devices of a node, each way");
  add("--network", &flags->network,
      "Rate between nodes, all adapters of a node together, each way");
  add("--peer-latency", &flags->peer_latency, "Latency of a message between devices of a node");
  add("--network-latency", &flags->network_latency, "Latency of a message between nodes");
  add("--compute", &flags->compute, "Operations per second of a device, as in 312e12");
  add("--achieved", &flags->achieved, "Share of --compute that training reaches, as in 0.5");
  add("--device-bandwidth", &flags->device_bandwidth, "Rate of the device's memory");
  add("--dram", &flags->dram, "Rate of the host's memory, reads and writes together");
  add("--cpu-update-share", &flags->cpu_update_share,
      "Share of --dram that the CPU optimizer reaches; otherwise 0.8");
  add("--disk-read", &flags->disk_read, "Read rate of all disks of a node, as in 6GB/s");
  add("--disk-write", &flags->disk_write, "Write rate of all disks of a node");
  add("--disk-endurance", &flags->disk_endurance,
      "Bytes that may be written to these disks in all");
}

}  // namespace

void AddPlanFlags(CLI::App* app, PlanFlags* flags) {
  const std::string optimizers =
      absl::StrCat("One of ", kernels::OptimizerNames(), "; otherwise adamw");
  const auto add = [&](const char* name, std::string* value, const char* help) {
    app->add_option(name, *value, help);
  };
  add("--model", &flags->model, "A published model, or a family; see --list-models");
  add("--config", &flags->config, "In place of --model: a Hugging Face config.json, or its folder");
  add("--trace", &flags->trace, "In place of --model: a file of 'geminictl trace save'");
  add("--parameters", &flags->parameters,
      "Of a family: the member nearest to so many parameters, as in 18e9");
  add("--layers", &flags->layers, "Of a family: the member with so many layers");
  add("--hidden", &flags->hidden, "Of a family: the member of this width");
  add("--heads", &flags->heads,
      "Of a family: the member with so many heads; otherwise heads of 128 columns, or of as many "
      "as divide");
  app->add_flag("--largest", flags->largest, "Of a family: the largest member that fits");
  add("--hardware", &flags->hardware,
      "The accelerator and its host; see --list-hardware. Otherwise this machine; with memory "
      "alone, no times");
  add("--ranks", &flags->ranks, "Accelerators in all; otherwise 1");
  add("--ranks-per-node", &flags->ranks_per_node, "Instead of --ranks: accelerators in each host");
  add("--nodes", &flags->nodes, "Hosts of the accelerators; otherwise 1");
  add("--parallel", &flags->parallel,
      "auto: chooses the mesh, and shows the meshes to choose from; or a mesh, as in "
      "pipeline=2,tensor=2.5d:size=8:depth=2,sequence=ulysses:2,data=2; or compare: 1D, 2D, 2.5D "
      "and 3D beside each other");
  add("--place", &flags->place,
      "With --parallel auto: the --report of geminid-train --parallel auto, whose ranks, measured "
      "speeds, memory, batch and trained meshes the plan uses");
  add("--accumulate", &flags->accumulate,
      "With --parallel: micro-batches per step; otherwise chosen");
  add("--device-memory", &flags->device_memory, "Usable memory of each accelerator, as in 22GiB");
  add("--host-memory", &flags->host_memory,
      "Host memory for training on each node; otherwise unlimited");
  add("--disk", &flags->disk, "Disk space for training on each node; otherwise none");
  add("--batch", &flags->batch,
      "Sequences per micro-batch, over all ranks, as with geminid-train; otherwise one per rank");
  add("--context,--sequence", &flags->sequence,
      "Tokens per sequence; otherwise the most that the model takes, but 4096 at most");
  add("--optimizer", &flags->optimizer, optimizers.c_str());
  add("--state-dtype", &flags->state_dtype,
      "Type of the optimizer's state, as with geminid-train: fp32 or bf16; otherwise fp32");
  app->add_flag("--momentum", flags->momentum, "sgd and adafactor keep a momentum");
  add("--activations", &flags->activations,
      "As with geminid-train: recompute, all but the input of each part of a layer, the default; "
      "keep, all on the device; or offload, all in host memory but for a few");
  AddRates(app, flags);
  add("--save-trace", &flags->save_trace, "Writes the model's trace to this file too");
  app->add_flag("--list-models", flags->list_models, "Lists models and families, and ends");
  app->add_flag("--list-hardware", flags->list_hardware, "Lists the hardware known, and ends");
}

}  // namespace geminid::ctl
