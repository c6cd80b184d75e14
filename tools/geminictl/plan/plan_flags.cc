#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/geminictl/plan/plan_options.h"

namespace geminid::ctl {

void AddPlanFlags(CLI::App* app, PlanFlags* flags) {
  const std::string optimizers =
      absl::StrCat("One of ", kernels::OptimizerNames(), "; otherwise adamw");
  const auto add = [&](const char* name, std::string* value, const char* help) {
    app->add_option(name, *value, help);
  };
  add("--model", &flags->model, "A published model, or a family; see --list-models");
  add("--config", &flags->config,
      "Instead: a Hugging Face config.json, or the folder that it is in");
  add("--trace", &flags->trace, "Instead: a file of 'geminictl trace save'");
  add("--parameters", &flags->parameters, "Of a family: the member nearest to, as in 18e9");
  add("--layers", &flags->layers, "Of a family: the member with so many layers ...");
  add("--hidden", &flags->hidden, "... of this width");
  add("--heads", &flags->heads, "... and heads; otherwise of 128 columns, or as many as divide");
  app->add_flag("--largest", flags->largest, "Of a family: the largest member that fits");
  add("--hardware", &flags->hardware,
      "The accelerator and its host; see --list-hardware. Without it, and without memory, this "
      "machine; without it and with memory, no times");
  add("--ranks", &flags->ranks, "Accelerators in all; otherwise 1");
  add("--ranks-per-node", &flags->ranks_per_node, "Instead of --ranks: accelerators in each host");
  add("--nodes", &flags->nodes, "Hosts that they are in; otherwise 1");
  add("--parallel", &flags->parallel,
      "auto: chooses how model and batch are cut over the ranks, and shows what it chose from; or "
      "that cut, as in pipeline=2,tensor=2.5d:size=8:depth=2,sequence=ulysses:2,data=2; or "
      "compare: "
      "1D, 2D, 2.5D and 3D beside each other");
  add("--place", &flags->place,
      "With --parallel auto: the --report of geminid-train --parallel auto, whose ranks, measured "
      "speeds, memory, batch and trained meshes are taken");
  add("--accumulate", &flags->accumulate,
      "With --parallel: micro-batches per step; otherwise chosen");
  add("--device-memory", &flags->device_memory, "Usable on each accelerator, as in 22GiB");
  add("--host-memory", &flags->host_memory, "For training on each node; otherwise unlimited");
  add("--disk", &flags->disk, "For training on each node; otherwise none");
  add("--batch", &flags->batch,
      "Sequences per micro-batch, over all ranks, as geminid-train has it; otherwise one per rank");
  add("--context,--sequence", &flags->sequence,
      "Tokens per sequence; otherwise the most that the model takes, but 4096 at most");
  add("--optimizer", &flags->optimizer, optimizers.c_str());
  add("--state-dtype", &flags->state_dtype,
      "Of the optimizer's state, as geminid-train has it: fp32 or bf16; otherwise fp32");
  app->add_flag("--momentum", flags->momentum, "sgd and adafactor keep a momentum");
  app->add_flag("--as-planned", flags->as_planned,
                "Plans with all that the planner knows, also with what today's engine does not "
                "do: state on both sides and streamed in one step, activations decided one by one, "
                "weights on disk");
  add("--activations", &flags->activations,
      "recompute: all but the input of each part of a layer, the default; keep: all are kept; "
      "planned, the default with --as-planned: kept, offloaded or recomputed as it pays");
  add("--link-up", &flags->link_up, "Host to device, as in 26GB/s");
  add("--link-down", &flags->link_down, "Device to host");
  add("--link-both", &flags->link_both, "Both directions together");
  add("--link-latency", &flags->link_latency, "What a copy takes beside its bytes, as in 10us");
  add("--uplink", &flags->uplink, "All devices of a node together, in one direction");
  add("--peer", &flags->peer, "Between devices of a node, each way");
  add("--network", &flags->network, "Between nodes, all adapters of one together, each way");
  add("--peer-latency", &flags->peer_latency, "Of a message between devices of a node");
  add("--network-latency", &flags->network_latency, "Of a message between nodes");
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

}  // namespace geminid::ctl
