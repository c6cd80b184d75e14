#include "collectives/hierarchical/chain_reduction.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "collectives/reduce.h"

namespace geminid::collectives {
namespace {

template <class Element>
void Grow(std::vector<Element>* room, size_t elements) {
  if (room->size() < elements) room->resize(elements);
}

}  // namespace

absl::Status ChainReduction::Run(const Operation& operation, const ChainPlan& plan,
                                 const std::byte* in, Deliver deliver) {
  const int host = levels_.host();
  const size_t width = SizeOf(operation.dtype);
  const bool wide = IsFloating(operation.dtype) && width < sizeof(float);
  const Job job{.operation = operation,
                .plan = plan,
                .in = in,
                .width = width,
                .partial_width = wide ? sizeof(float) : width,
                .wide = wide,
                .first = host == 0,
                .last = host == plan.hosts().count - 1};
  MakeRoom(job);
  const auto deliver_known_in = [&](size_t step) {
    const size_t block = plan.StepOf(host, step).known;
    return block == ChainPlan::kNone ? absl::OkStatus() : deliver(block, SumOf(step));
  };
  const auto gather_for = [&](size_t step) {
    const size_t block = plan.StepOf(host, step).add;
    return block == ChainPlan::kNone ? absl::OkStatus() : GatherLane(job, block);
  };
  GEMINID_RETURN_IF_ERROR(gather_for(0));
  for (size_t step = 0; step < plan.steps(); ++step) {
    const ChainPlan::Step moves = plan.StepOf(host, step);
    if (moves.add != ChainPlan::kNone) Add(job, moves.add, SumOf(step));
    // Work in memory is done while the network transfers.
    const auto meanwhile = [&] {
      if (step > 0) GEMINID_RETURN_IF_ERROR(deliver_known_in(step - 1));
      return gather_for(step + 1);
    };
    GEMINID_RETURN_IF_ERROR(levels_.Between(MessagesOf(job, moves, step), meanwhile));
  }
  return deliver_known_in(plan.steps() - 1);
}

void ChainReduction::MakeRoom(const Job& job) {
  size_t longest = 0;
  for (size_t block = 0; block < job.plan.blocks(); ++block) {
    longest = std::max(longest, job.plan.LaneCount(block));
  }
  const auto ranks = static_cast<size_t>(levels_.size());
  Grow(&staged_, ranks * longest * job.width);
  Grow(&gathered_, ranks * longest * job.width);
  Grow(&from_before_, longest * job.partial_width);
  Grow(&to_next_, longest * job.partial_width);
  for (std::vector<std::byte>& sum : sums_) Grow(&sum, longest * job.width);
  if (job.wide) Grow(&wide_, (ranks + 1) * longest);
}

absl::Status ChainReduction::GatherLane(const Job& job, size_t block) {
  Operation operation = job.operation;
  operation.count = job.plan.LaneCount(block);
  const std::byte* lanes = Stage(job, block);
  return levels_.Inside(
      [&](auto& host) { return host.DoAllToAll(operation, lanes, gathered_.data()); });
}

// The block's lanes, one after the other at equal distances; undefined for ranks without a lane.
const std::byte* ChainReduction::Stage(const Job& job, size_t block) {
  const size_t count = job.plan.LaneCount(block);
  const ChainPlan::Lane first = job.plan.LaneOf(block, 0);
  const int ranks = job.plan.hosts().ranks_each;
  bool in_place = levels_.size() == ranks;
  for (int local = 0; local < ranks; ++local) {
    const ChainPlan::Lane lane = job.plan.LaneOf(block, local);
    in_place = in_place && lane.count == count &&
               lane.begin == first.begin + static_cast<size_t>(local) * count;
  }
  if (in_place) return job.in + first.begin * job.width;
  for (int local = 0; local < ranks; ++local) {
    const ChainPlan::Lane lane = job.plan.LaneOf(block, local);
    if (lane.count == 0) continue;
    std::memcpy(staged_.data() + static_cast<size_t>(local) * count * job.width,
                job.in + lane.begin * job.width, lane.count * job.width);
  }
  return staged_.data();
}

void ChainReduction::Add(const Job& job, size_t block, std::byte* sum) {
  const Operation& operation = job.operation;
  const auto ranks = static_cast<size_t>(levels_.size());
  const size_t apart = job.plan.LaneCount(block);
  const size_t count = job.plan.LaneOf(block, levels_.local()).count;
  if (count == 0) return;
  const std::byte* lanes = gathered_.data();
  if (job.wide) {
    WidenToFloat(gathered_.data(), wide_.data(), ranks * apart, operation.dtype);
    lanes = reinterpret_cast<const std::byte*>(wide_.data());
  }
  std::vector<const std::byte*> inputs;
  if (!job.first) inputs.push_back(from_before_.data());
  for (size_t r = 0; r < ranks; ++r) inputs.push_back(lanes + r * apart * job.partial_width);
  float* wide_sum = wide_.data() + ranks * apart;
  std::byte* to = !job.last  ? to_next_.data()
                  : job.wide ? reinterpret_cast<std::byte*>(wide_sum)
                             : sum;
  ReduceInOrder(inputs, to, count, job.wide ? DType::kFloat32 : operation.dtype, operation.reduce,
                job.last ? operation.scale : 1.0);
  if (job.last && job.wide) NarrowFromFloat(wide_sum, sum, count, operation.dtype);
}

ExchangeMessages ChainReduction::MessagesOf(const Job& job, const ChainPlan::Step& moves,
                                            size_t step) {
  const int host = levels_.host();
  const auto count = [&](size_t block) { return job.plan.LaneOf(block, levels_.local()).count; };
  ExchangeMessages messages{.sent = job.operation, .expected = job.operation};
  if (!levels_.has_counterparts()) return messages;
  if (moves.send_partial != ChainPlan::kNone) {
    messages.sends.push_back({levels_.Counterpart(host + 1), to_next_.data(),
                              count(moves.send_partial) * job.partial_width});
  }
  if (moves.take_partial != ChainPlan::kNone) {
    messages.receives.push_back({levels_.Counterpart(host - 1), from_before_.data(),
                                 count(moves.take_partial) * job.partial_width});
  }
  if (moves.send_sum != ChainPlan::kNone) {
    const std::byte* sum = SumOf(job.last ? step : step + 1);  // + 1: of the step before
    messages.sends.push_back(
        {levels_.Counterpart(moves.send_sum_to), sum, count(moves.send_sum) * job.width});
  }
  if (moves.take_sum != ChainPlan::kNone) {
    messages.receives.push_back(
        {levels_.Counterpart(moves.take_sum_from), SumOf(step), count(moves.take_sum) * job.width});
  }
  return messages;
}

}  // namespace geminid::collectives
