#include <algorithm>

#include "base/pages.h"
#include "daemon/planner/hierarchy/price.h"
#include "daemon/planner/hierarchy/update.h"

namespace geminid::planner {
namespace {

double& At(PricedSeconds& seconds, Resource resource) {
  return seconds[static_cast<std::size_t>(resource)];
}

double& CpuChain(PricedSeconds& seconds, std::size_t checkpoint) {
  return seconds[kNumResources + checkpoint];
}

double& UpChain(PricedSeconds& seconds, std::size_t checkpoint) {
  return seconds[kNumResources + kCheckpoints + checkpoint];
}

double& MemoryChain(PricedSeconds& seconds, std::size_t checkpoint) {
  return seconds[kNumResources + 2 * kCheckpoints + checkpoint];
}

void AddLink(const Machine& machine, double up_bytes, double down_bytes, PricedSeconds& seconds) {
  ResourceSeconds resources = {};
  AddTransfer(machine, up_bytes, down_bytes, resources);
  for (std::size_t r = 0; r < kNumResources; ++r) seconds[r] += resources[r];
}

class Builder {
 public:
  explicit Builder(const PreparedProblem& prepared)
      : prepared_(prepared),
        problem_(prepared.problem),
        starts_(MomentStarts(prepared.problem.trace)),
        last_moment_(static_cast<std::int64_t>(prepared.problem.trace.moments.size()) - 1) {}

  PriceModel Build() {
    FindUses();
    FindHostMoment();
    FindCheckpoints();
    for (ChunkIndex c = 0; c < problem_.trace.chunks.size(); ++c) AddChunk(c);
    for (std::uint32_t i = 0; i < problem_.activations.size(); ++i) AddActivation(i);
    AddRoom();
    AddSpills();
    return std::move(model_);
  }

 private:
  struct ChunkUse {
    std::int64_t moment;
    bool invalidates;
  };

  void FindUses() {
    uses_.resize(problem_.trace.chunks.size());
    const std::vector<MomentTrace>& moments = problem_.trace.moments;
    for (std::size_t t = 0; t < moments.size(); ++t) {
      At(model_.base, Resource::kCompute) += moments[t].compute_seconds;
      for (const Use& use : moments[t].uses) {
        uses_[use.chunk].push_back({static_cast<std::int64_t>(t), use.invalidates});
      }
    }
  }

  // Finds the moment at which the most activation bytes are alive.
  void FindHostMoment() {
    Decisions kept;
    kept.optimizer.assign(problem_.optimizer.size(), OptimizerPlace::kHost);
    kept.activations.assign(problem_.activations.size(), ActivationPlace::kKeep);
    activations_ = ComputeOccupancy(problem_, kept).device_activations;
    host_moment_ =
        std::max_element(activations_.begin(), activations_.end()) - activations_.begin();
  }

  // Checkpoints are chunks at even distances in the order of their first use, including the last.
  void FindCheckpoints() {
    order_.assign(problem_.optimizer.size(), 0);
    if (problem_.options.update_during_backward || prepared_.without.Has(HierarchyPart::kChains))
      return;
    std::vector<ChunkIndex> chunks;
    for (ChunkIndex c = 0; c < problem_.optimizer.size(); ++c) {
      if (prepared_.updated(c)) chunks.push_back(c);
    }
    std::stable_sort(chunks.begin(), chunks.end(), [&](ChunkIndex a, ChunkIndex b) {
      return prepared_.first_use[a] < prepared_.first_use[b];
    });
    if (chunks.empty()) return;
    for (std::size_t i = 0; i < chunks.size(); ++i) order_[chunks[i]] = i;
    for (std::size_t q = 0; q < kCheckpoints; ++q) {
      const std::size_t at = ((q + 1) * chunks.size() + kCheckpoints - 1) / kCheckpoints - 1;
      const Moment moment = prepared_.first_use[chunks[at]];
      checkpoints_.push_back({at, moment});
      const double rest = starts_.back() - starts_[moment];
      CpuChain(model_.base, q) = rest;
      UpChain(model_.base, q) = rest;
      MemoryChain(model_.base, q) = rest;
    }
  }

  // Adds the cost of a chunk's update to the chains that contain it.
  void AddToChains(ChunkIndex chunk, const UpdateCost& cost, PricedSeconds& seconds) const {
    for (std::size_t q = 0; q < checkpoints_.size(); ++q) {
      const bool before = order_[chunk] <= checkpoints_[q].order;
      // An update on the device is part of the computation at the first use.
      const bool after = prepared_.first_use[chunk] >= checkpoints_[q].moment;
      CpuChain(seconds, q) += (before ? cost.cpu : 0) + (after ? cost.device : 0);
      UpChain(seconds, q) += (before ? cost.up : 0) + (after ? cost.device : 0);
      MemoryChain(seconds, q) += (before ? cost.memory : 0) + (after ? cost.device : 0);
    }
  }

  UpdateCost CostOf(ChunkIndex chunk, OptimizerPlace place) const {
    return CostOfUpdate(problem_.machine, problem_.optimizer[chunk],
                        problem_.trace.chunks[chunk].transfer_bytes, place);
  }

  // Adds the gaps of a chunk. Returns how many loads the chunk needs whatever is retained.
  std::uint64_t AddGaps(ChunkIndex chunk) {
    const std::vector<ChunkUse>& uses = uses_[chunk];
    const Chunk& traced = problem_.trace.chunks[chunk];
    const PlannerOptions& options = problem_.options.planner;
    const bool changes = options.weights_change_between_iterations && !traced.frozen;
    const std::uint64_t alignment = options.alignment_bytes;
    // Under the policy kDevice the required bytes include every chunk's place.
    const bool counted = options.policy == Policy::kDevice;
    const std::uint64_t extent_bytes = base::RoundUp(traced.size_bytes, alignment);
    const double bytes = counted ? 0.0 : static_cast<double>(extent_bytes);
    PricedGap gap;
    AddLink(problem_.machine, static_cast<double>(traced.transfer_bytes), 0, gap.drop);
    std::uint64_t loads = 0;
    for (std::size_t k = 0; k < uses.size(); ++k) {
      const bool crosses = k + 1 == uses.size();
      const bool valued = !uses[k].invalidates && !(crosses && changes);
      if (!valued) {
        ++loads;
        continue;
      }
      gap.span = {uses[k].moment + 1, crosses ? last_moment_ : uses[k + 1].moment - 1, bytes};
      // For a gap over the boundary, the part at the end of the iteration stands for the whole gap.
      model_.gaps.push_back(gap);
    }
    return loads;
  }

  void AddChunk(ChunkIndex chunk) {
    const OptimizerItem& item = problem_.optimizer[chunk];
    PricedItem priced;
    priced.is_chunk = true;
    priced.index = chunk;
    priced.first_gap = model_.gaps.size();
    const std::uint64_t loads = AddGaps(chunk);
    priced.num_gaps = model_.gaps.size() - priced.first_gap;
    const Chunk& traced = problem_.trace.chunks[chunk];
    const auto up = static_cast<double>(loads * traced.transfer_bytes);
    std::uint64_t gradients = 0;
    for (const ChunkUse& use : uses_[chunk])
      gradients += use.invalidates ? traced.gradient_bytes : 0;
    const bool updated = prepared_.updated(chunk);
    const auto state = static_cast<double>(item.state_bytes());
    const auto gradient = static_cast<double>(item.gradient_bytes);
    const double memory_rate = problem_.machine.host_memory_bytes_per_second /
                               static_cast<double>(problem_.machine.ranks_on_node);

    Option host;
    host.place = static_cast<std::uint8_t>(OptimizerPlace::kHost);
    host.host_bytes = state + gradient;
    AddLink(problem_.machine, up, static_cast<double>(gradients), host.seconds);
    if (updated) {
      At(host.seconds, Resource::kHostMemory) += (2 * state + gradient) / memory_rate;
      const UpdateCost cost = CostOf(chunk, OptimizerPlace::kHost);
      At(host.seconds, Resource::kCpuUpdate) = cost.cpu;
      AddToChains(chunk, cost, host.seconds);
    }
    priced.options.push_back(host);

    Option device;
    device.place = static_cast<std::uint8_t>(OptimizerPlace::kDevice);
    device.state_bytes = DeviceStateBytes(item);
    device.spans[0] = {0, last_moment_, static_cast<double>(DeviceStateBytes(item))};
    if (updated) {
      const UpdateCost cost = CostOf(chunk, OptimizerPlace::kDevice);
      At(device.seconds, Resource::kCompute) = cost.device;
      AddToChains(chunk, cost, device.seconds);
    }
    if (device.state_bytes <= prepared_.device_state_limit) priced.options.push_back(device);

    if (updated) {
      Option streamed;
      streamed.place = static_cast<std::uint8_t>(OptimizerPlace::kStreamed);
      streamed.host_bytes = state;
      streamed.spans[0] = {0, last_moment_, gradient};
      AddLink(problem_.machine, up + state, state, streamed.seconds);
      const UpdateCost cost = CostOf(chunk, OptimizerPlace::kStreamed);
      At(streamed.seconds, Resource::kCompute) = cost.device;
      AddToChains(chunk, cost, streamed.seconds);
      priced.options.push_back(streamed);
    }
    model_.items.push_back(std::move(priced));
  }

  void AddActivation(std::uint32_t index) {
    const ActivationItem& item = problem_.activations[index];
    const OffloadWindow window = SoloWindow(problem_, starts_, item);
    PricedItem priced;
    priced.index = index;
    const auto add = [&](ActivationPlace place) -> Option& {
      Option option;
      option.place = static_cast<std::uint8_t>(place);
      const ActivationSpans spans = SpansOf(item, place, window);
      for (std::size_t k = 0; k < option.spans.size(); ++k) {
        const Span& span = spans.spans[k];
        option.spans[k] = {span.first, span.last, static_cast<double>(span.bytes)};
      }
      priced.options.push_back(option);
      return priced.options.back();
    };
    add(ActivationPlace::kKeep);
    if (item.can_offload && window.gone < window.back) {
      Option& option = add(ActivationPlace::kOffload);
      const auto bytes = static_cast<double>(item.bytes);
      AddLink(problem_.machine, bytes, bytes, option.seconds);
      const bool alive = item.produced <= host_moment_ && host_moment_ <= item.consumed;
      option.host_bytes = alive ? bytes : 0;
    }
    if (item.can_recompute) {
      PricedSeconds& seconds = add(ActivationPlace::kRecompute).seconds;
      At(seconds, Resource::kCompute) = item.recompute_seconds;
      for (std::size_t q = 0; q < checkpoints_.size(); ++q) {
        if (item.consumed < checkpoints_[q].moment) continue;
        CpuChain(seconds, q) = item.recompute_seconds;
        UpChain(seconds, q) = item.recompute_seconds;
        MemoryChain(seconds, q) = item.recompute_seconds;
      }
    }
    model_.items.push_back(std::move(priced));
  }

  void AddRoom() {
    const std::vector<MomentTrace>& moments = problem_.trace.moments;
    const auto arena = static_cast<double>(problem_.trace.arena_bytes);
    for (std::size_t t = 0; t < moments.size(); ++t) {
      model_.free_bytes.push_back(arena - static_cast<double>(moments[t].workspace_bytes) -
                                  static_cast<double>(prepared_.required_bytes[t]));
    }
    // Each segment has the moment at which all kept activations would leave the least bytes.
    const std::size_t count = std::min(kMaxSegments, moments.size());
    for (std::size_t s = 0; s < count; ++s) {
      const std::size_t end = (s + 1) * moments.size() / count;
      std::size_t tightest = s * moments.size() / count;
      const auto left = [&](std::size_t t) {
        return model_.free_bytes[t] - static_cast<double>(activations_[t]);
      };
      for (std::size_t t = tightest; t < end; ++t) {
        if (left(t) < left(tightest)) tightest = t;
      }
      model_.segments.push_back(static_cast<std::int64_t>(tightest));
    }
  }

  void AddSpills() {
    const Machine& machine = problem_.machine;
    model_.host_room = static_cast<double>(machine.host_bytes);
    if (machine.disk_read_bytes_per_second <= 0) return;
    const auto ranks = static_cast<double>(machine.ranks_on_node);
    for (std::size_t kind = 0; kind < model_.spills.size(); ++kind) {
      Spill& spill = model_.spills[kind];
      const bool writes = kind == 0;
      At(spill.seconds_per_byte, Resource::kDiskRead) = ranks / machine.disk_read_bytes_per_second;
      At(spill.seconds_per_byte, Resource::kDiskWrite) =
          writes ? ranks / machine.disk_write_bytes_per_second : 0;
      At(spill.seconds_per_byte, Resource::kHostMemory) =
          (writes ? 2 : 1) * ranks / machine.host_memory_bytes_per_second;
    }
    for (ChunkIndex c = 0; c < problem_.optimizer.size(); ++c) {
      const auto bytes = static_cast<double>(problem_.optimizer[c].state_bytes());
      if (prepared_.updated(c)) {
        model_.spills[0].limit_bytes += bytes;
      } else if (prepared_.first_use[c] != kNoMoment) {
        model_.spills[1].limit_bytes += bytes;
      } else {
        model_.host_room += bytes;  // never used, so it lies on disk at no cost
      }
    }
    for (Spill& spill : model_.spills) {
      spill.limit_bytes = std::min(spill.limit_bytes, static_cast<double>(machine.disk_bytes));
    }
  }

  const PreparedProblem& prepared_;
  const HierarchyProblem& problem_;
  const std::vector<double> starts_;
  const std::int64_t last_moment_;
  std::vector<std::vector<ChunkUse>> uses_;
  struct Checkpoint {
    std::size_t order;  // of the item's chunk, by first use
    Moment moment;      // of the chunk's first use
  };
  std::vector<Checkpoint> checkpoints_;
  std::vector<std::size_t> order_;          // per chunk, by first use among the updated
  std::vector<std::uint64_t> activations_;  // per moment, if all are kept
  std::int64_t host_moment_ = 0;
  PriceModel model_;
};

}  // namespace

PriceModel BuildPriceModel(const PreparedProblem& prepared) { return Builder(prepared).Build(); }

}  // namespace geminid::planner
