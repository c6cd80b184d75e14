#include "client/c_api/objects.h"

#include <atomic>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace geminid::c_api {

uint64_t NextName() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

EngineObject::EngineObject(std::shared_ptr<SessionObject> session,
                           std::shared_ptr<RanksObject> ranks,
                           std::vector<zero::Parameter> parameters,
                           std::unique_ptr<zero::Engine> engine)
    : session_(std::move(session)),
      ranks_(std::move(ranks)),
      parameters_(std::move(parameters)),
      engine_(std::move(engine)) {}

absl::StatusOr<zero::ParameterId> EngineObject::Id(uint32_t parameter) const {
  if (parameter < parameters_.size()) return zero::ParameterId{parameter};
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", parameter, " is none of the engine's ", parameters_.size()));
}

absl::StatusOr<uint64_t> EngineObject::Elements(uint32_t parameter) const {
  if (const auto id = Id(parameter); !id.ok()) return id.status();
  const std::vector<int64_t>& shape = parameters_[parameter].shape;
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<uint64_t>());
}

uint64_t EngineObject::Add(zero::Operation operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  operations_.emplace(next_, std::make_shared<zero::Operation>(std::move(operation)));
  return next_++;
}

uint64_t EngineObject::Add(zero::Workspace::Block block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.emplace(next_, std::move(block));
  return next_++;
}

std::shared_ptr<zero::Operation> EngineObject::Find(uint64_t operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = operations_.find(operation);
  return found == operations_.end() ? nullptr : found->second;
}

std::shared_ptr<zero::Operation> EngineObject::Take(uint64_t operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto node = operations_.extract(operation);
  return node.empty() ? nullptr : node.mapped();
}

std::vector<std::shared_ptr<zero::Operation>> EngineObject::TakeAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<zero::Operation>> all;
  for (auto& [number, operation] : std::exchange(operations_, {})) {
    all.push_back(std::move(operation));
  }
  return all;
}

bool EngineObject::Release(uint64_t block) {
  zero::Workspace::Block freed;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto node = blocks_.extract(block);
  if (node.empty()) return false;
  freed = std::move(node.mapped());
  return true;
}

HandleTable<geminid_session, SessionObject>& Sessions() {
  static auto* const table = new HandleTable<geminid_session, SessionObject>("session");
  return *table;
}

HandleTable<geminid_ranks, RanksObject>& AllRanks() {
  static auto* const table = new HandleTable<geminid_ranks, RanksObject>("group of ranks");
  return *table;
}

HandleTable<geminid_engine, EngineObject>& Engines() {
  static auto* const table = new HandleTable<geminid_engine, EngineObject>("engine");
  return *table;
}

}  // namespace geminid::c_api
