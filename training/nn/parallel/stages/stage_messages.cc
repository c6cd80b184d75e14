#include "training/nn/parallel/stages/stage_messages.h"

#include <algorithm>
#include <set>

namespace geminid::collectives {
namespace {

// Tracks which messages have come from other stages. Each stage sends its messages in order.
class ReceivedMessages {
 public:
  ReceivedMessages(const PipelineShape& shape, const Routes& routes, int stage)
      : shape_(shape), routes_(routes), stage_(stage) {}

  // The stage from which the action still needs a message. Earlier messages of that stage come
  // first.
  std::optional<int> WaitsFor(const PipelineAction& action) const {
    const std::optional<Delivery> need = NeedOf(shape_, stage_, action);
    if (!need.has_value() || here_.contains(need->stage_message)) return std::nullopt;
    return need->stage;
  }
  StageMessage TakeNext(int from) {
    const StageMessage& next = routes_.at({from, stage_})[taken_[from]++];
    here_.insert(next);
    return next;
  }
  size_t TakenFrom(int from) const {
    const auto found = taken_.find(from);
    return found == taken_.end() ? 0 : found->second;
  }
  // The action takes the message.
  void Use(const StageMessage& stage_message) { here_.erase(stage_message); }
  void Keep(const StageMessage& stage_message) { here_.insert(stage_message); }
  size_t here() const { return here_.size(); }

 private:
  const PipelineShape& shape_;
  const Routes& routes_;
  const int stage_;
  std::map<int, size_t> taken_;  // by sending stage
  std::set<StageMessage> here_;
};

// For each message that `stage` sends: how many of this stage's messages it has taken before.
using TakenCounts = std::map<StageMessage, size_t>;

TakenCounts TakenCountsBeforeSending(const PipelineShape& shape, const PipelineSchedule& schedule,
                                     const Routes& routes, int stage, int from) {
  ReceivedMessages arrivals(shape, routes, stage);
  TakenCounts taken;
  for (const PipelineAction& action : schedule[static_cast<size_t>(stage)]) {
    while (const std::optional<int> other = arrivals.WaitsFor(action)) arrivals.TakeNext(*other);
    if (const auto need = NeedOf(shape, stage, action)) arrivals.Use(need->stage_message);
    const std::optional<Delivery> delivery = DeliveryOf(shape, stage, action);
    if (!delivery.has_value()) continue;
    if (delivery->stage == stage) arrivals.Keep(delivery->stage_message);
    if (delivery->stage == from) taken[delivery->stage_message] = arrivals.TakenFrom(from);
  }
  return taken;
}

// Counts the messages that this stage has sent, and those that it knows to have arrived.
class SentMessages {
 public:
  void Send(int to) { ++ways_[to].sent; }
  void Know(int to, size_t taken) { ways_[to].taken = std::max(ways_[to].taken, taken); }
  size_t under_way() const {
    size_t stage_messages = 0;
    for (const auto& [stage, way] : ways_) stage_messages += way.sent - way.taken;
    return stage_messages;
  }

 private:
  struct MessageCounts {
    size_t sent = 0, taken = 0;
  };
  std::map<int, MessageCounts> ways_;
};

}  // namespace

std::optional<Delivery> NeedOf(const PipelineShape& shape, int stage,
                               const PipelineAction& action) {
  if (action.work == PipelineWork::kBackwardWeight) return std::nullopt;
  const bool gradient = action.work != PipelineWork::kForward;
  const int own = PositionOf(shape, stage, action.part);
  const int from = gradient ? own + 1 : own - 1;
  if (from < 0 || from == shape.stages * shape.parts) return std::nullopt;
  return Delivery{{gradient, own, action.micro_batch}, PlaceAt(shape, from).stage};
}

std::optional<Delivery> DeliveryOf(const PipelineShape& shape, int stage,
                                   const PipelineAction& action) {
  if (action.work == PipelineWork::kBackwardWeight) return std::nullopt;
  const bool gradient = action.work != PipelineWork::kForward;
  const int own = PositionOf(shape, stage, action.part);
  const int next = gradient ? own - 1 : own + 1;
  if (next < 0 || next == shape.stages * shape.parts) return std::nullopt;
  return Delivery{{gradient, next, action.micro_batch}, PlaceAt(shape, next).stage};
}

Routes RoutesOf(const PipelineShape& shape, const PipelineSchedule& schedule) {
  Routes routes;
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (const PipelineAction& action : schedule[static_cast<size_t>(stage)]) {
      const std::optional<Delivery> delivery = DeliveryOf(shape, stage, action);
      if (!delivery.has_value() || delivery->stage == stage) continue;
      routes[{stage, delivery->stage}].push_back(delivery->stage_message);
    }
  }
  return routes;
}

size_t MostStageMessages(const PipelineShape& shape, const PipelineSchedule& schedule, int stage) {
  const Routes routes = RoutesOf(shape, schedule);
  std::map<int, TakenCounts> others;
  for (const auto& [route, stage_messages] : routes) {
    if (route[1] != stage) continue;
    others[route[0]] = TakenCountsBeforeSending(shape, schedule, routes, route[0], stage);
  }
  ReceivedMessages arrivals(shape, routes, stage);
  SentMessages sent;
  size_t most = 0;
  for (const PipelineAction& action : schedule[static_cast<size_t>(stage)]) {
    while (const std::optional<int> from = arrivals.WaitsFor(action)) {
      const StageMessage next = arrivals.TakeNext(*from);
      most = std::max(most, arrivals.here() + sent.under_way());
      sent.Know(*from, others.at(*from).at(next));
    }
    const std::optional<Delivery> need = NeedOf(shape, stage, action);
    const std::optional<Delivery> delivery = DeliveryOf(shape, stage, action);
    if (need.has_value()) arrivals.Use(need->stage_message);
    most = std::max(most, arrivals.here() + sent.under_way() + (need.has_value() ? 1 : 0) +
                              (delivery.has_value() ? 1 : 0));
    if (!delivery.has_value()) continue;
    if (delivery->stage == stage) {
      arrivals.Keep(delivery->stage_message);
    } else {
      sent.Send(delivery->stage);
    }
  }
  return most;
}

}  // namespace geminid::collectives
