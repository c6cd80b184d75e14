#include "tools/geminictl/plan/plan_rules.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace geminid::ctl {
namespace {

// Every flag, and whether it is given.
struct Flag {
  absl::string_view name;
  bool given;
};

std::vector<Flag> FlagsOf(const PlanFlags& f) {
  const auto said = [](const std::string& text) { return !text.empty(); };
  return {{"--model", said(f.model)},
          {"--config", said(f.config)},
          {"--trace", said(f.trace)},
          {"--parameters", said(f.parameters)},
          {"--layers", said(f.layers)},
          {"--hidden", said(f.hidden)},
          {"--heads", said(f.heads)},
          {"--largest", f.largest},
          {"--hardware", said(f.hardware)},
          {"--ranks", said(f.ranks)},
          {"--ranks-per-node", said(f.ranks_per_node)},
          {"--nodes", said(f.nodes)},
          {"--parallel", said(f.parallel)},
          {"--accumulate", said(f.accumulate)},
          {"--place", said(f.place)},
          {"--batch", said(f.batch)},
          {"--context", said(f.sequence)},
          {"--optimizer", said(f.optimizer)},
          {"--state-dtype", said(f.state_dtype)},
          {"--momentum", f.momentum},
          {"--activations", said(f.activations)},
          {"--device-memory", said(f.device_memory)},
          {"--host-memory", said(f.host_memory)},
          {"--disk", said(f.disk)},
          {"--disk-read", said(f.disk_read)},
          {"--disk-write", said(f.disk_write)},
          {"--disk-endurance", said(f.disk_endurance)},
          {"--link-up", said(f.link_up)},
          {"--link-down", said(f.link_down)},
          {"--link-both", said(f.link_both)},
          {"--link-latency", said(f.link_latency)},
          {"--uplink", said(f.uplink)},
          {"--peer", said(f.peer)},
          {"--network", said(f.network)},
          {"--peer-latency", said(f.peer_latency)},
          {"--network-latency", said(f.network_latency)},
          {"--compute", said(f.compute)},
          {"--achieved", said(f.achieved)},
          {"--device-bandwidth", said(f.device_bandwidth)},
          {"--dram", said(f.dram)},
          {"--cpu-update-share", said(f.cpu_update_share)},
          {"--save-trace", said(f.save_trace)},
          {"--list-models", f.list_models},
          {"--list-hardware", f.list_hardware}};
}

// Two flags of which one would be ignored.
struct Pair {
  absl::string_view flag;
  absl::string_view other;
  absl::string_view why;
};

constexpr absl::string_view kOneSubject = "each says what to plan";
constexpr absl::string_view kShapeIsGiven = "the shape is in the file";
constexpr absl::string_view kOneMember = "each names the member of the family";
constexpr absl::string_view kTraceSays = "the trace has that value";
constexpr absl::string_view kPlaceSays = "the measured run has that value";

constexpr Pair kExcluding[] = {
    {"--model", "--config", kOneSubject},
    {"--model", "--trace", kOneSubject},
    {"--config", "--trace", kOneSubject},
    {"--config", "--parameters", kShapeIsGiven},
    {"--config", "--layers", kShapeIsGiven},
    {"--config", "--hidden", kShapeIsGiven},
    {"--config", "--heads", kShapeIsGiven},
    {"--config", "--largest", kShapeIsGiven},
    {"--trace", "--parameters", kTraceSays},
    {"--trace", "--layers", kTraceSays},
    {"--trace", "--hidden", kTraceSays},
    {"--trace", "--heads", kTraceSays},
    {"--trace", "--largest", kTraceSays},
    {"--trace", "--ranks", kTraceSays},
    {"--trace", "--ranks-per-node", kTraceSays},
    {"--trace", "--nodes", kTraceSays},
    {"--trace", "--parallel", "its ranks have their shards already"},
    {"--ranks", "--ranks-per-node", "each says how many accelerators there are"},
    {"--parallel", "--largest", "a mesh is for one given model"},
    {"--parallel", "--save-trace", "ranks of different stages have different traces"},
    {"--parallel", "--disk", "meshes are planned without a disk"},
    {"--trace", "--batch", kTraceSays},
    {"--trace", "--context", kTraceSays},
    {"--trace", "--activations", kTraceSays},
    {"--trace", "--disk", "a trace does not say which state the engine would have on disk"},
    {"--trace", "--compute", kTraceSays},
    {"--trace", "--achieved", kTraceSays},
    {"--trace", "--save-trace", "the trace is in a file already"},
    {"--place", "--trace", kPlaceSays},
    {"--place", "--largest", kPlaceSays},
    {"--place", "--hardware", kPlaceSays},
    {"--place", "--ranks", kPlaceSays},
    {"--place", "--ranks-per-node", kPlaceSays},
    {"--place", "--nodes", kPlaceSays},
    {"--place", "--accumulate", kPlaceSays},
    {"--place", "--batch", kPlaceSays},
    {"--place", "--context", kPlaceSays},
    {"--place", "--optimizer", kPlaceSays},
    {"--place", "--state-dtype", kPlaceSays},
    {"--place", "--momentum", kPlaceSays},
    {"--place", "--activations", kPlaceSays},
    {"--place", "--device-memory", kPlaceSays},
    {"--place", "--host-memory", kPlaceSays},
    {"--place", "--disk", kPlaceSays},
    {"--place", "--link-up", kPlaceSays},
    {"--place", "--link-down", kPlaceSays},
    {"--place", "--link-both", kPlaceSays},
    {"--place", "--link-latency", kPlaceSays},
    {"--place", "--uplink", kPlaceSays},
    {"--place", "--peer", kPlaceSays},
    {"--place", "--network", kPlaceSays},
    {"--place", "--peer-latency", kPlaceSays},
    {"--place", "--network-latency", kPlaceSays},
    {"--place", "--compute", kPlaceSays},
    {"--place", "--achieved", kPlaceSays},
    {"--place", "--device-bandwidth", kPlaceSays},
    {"--place", "--dram", kPlaceSays},
    {"--place", "--cpu-update-share", kPlaceSays},
    {"--parameters", "--layers", kOneMember},
    {"--parameters", "--hidden", kOneMember},
    {"--parameters", "--heads", kOneMember},
    {"--parameters", "--largest", kOneMember},
    {"--largest", "--layers", kOneMember},
    {"--largest", "--hidden", kOneMember},
    {"--largest", "--heads", kOneMember},
};

// `flag` has no effect without `other`.
constexpr Pair kNeeding[] = {
    {"--accumulate", "--parallel", "without it a step is one pass"},
    {"--place", "--parallel", "a mesh is chosen for it"},
    {"--peer-latency", "--parallel", "nothing else is planned with it"},
    {"--network-latency", "--parallel", "nothing else is planned with it"},
    {"--disk-read", "--disk", "it is the disk's rate"},
    {"--disk-write", "--disk", "it is the disk's rate"},
    {"--disk-endurance", "--disk", "it is the disk's endurance"},
};

}  // namespace

absl::Status CheckFlagsCombine(const PlanFlags& flags) {
  const std::vector<Flag> all = FlagsOf(flags);
  const auto given = [&](absl::string_view name) {
    for (const Flag& flag : all) {
      if (flag.name == name) return flag.given;
    }
    return false;
  };
  for (const absl::string_view list : {"--list-models", "--list-hardware"}) {
    for (const Flag& flag : all) {
      if (!given(list) || !flag.given || flag.name == list) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(list, " prints a table and ends; leave out ", flag.name));
    }
  }
  for (const Pair& pair : kExcluding) {
    if (!given(pair.flag) || !given(pair.other)) continue;
    return absl::InvalidArgumentError(absl::StrCat(pair.flag, " and ", pair.other,
                                                   " do not go together: ", pair.why,
                                                   "; leave one of them out"));
  }
  for (const Pair& pair : kNeeding) {
    if (!given(pair.flag) || given(pair.other)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(pair.flag, " needs ", pair.other, ": ", pair.why));
  }
  return absl::OkStatus();
}

}  // namespace geminid::ctl
