#include "client/c_api/objects.h"

#include <atomic>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/src/session_internal.h"

namespace geminid::c_api {
namespace {

absl::Status NotOpen(uint64_t operation) {
  return absl::InvalidArgumentError(
      absl::StrCat("operation ", operation, " is not open: it was finished, or never begun"));
}

absl::Status IsKept(uint64_t operation, uint64_t keepers) {
  return absl::FailedPreconditionError(
      absl::StrCat("operation ", operation, " has ", keepers,
                   " exported tensor(s); call their deleters before it is finished"));
}

}  // namespace

uint64_t NextName() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

EngineObject::EngineObject(std::shared_ptr<SessionObject> session,
                           std::shared_ptr<RanksObject> ranks,
                           std::vector<zero::Parameter> parameters, zero::DataType data_type,
                           std::unique_ptr<zero::Engine> engine)
    : session_(std::move(session)),
      ranks_(std::move(ranks)),
      parameters_(std::move(parameters)),
      data_type_(data_type),
      engine_(std::move(engine)) {}

absl::Status EngineObject::CheckUsable() const { return CheckNotForked(*session_->session); }

absl::StatusOr<zero::ParameterId> EngineObject::Id(uint32_t parameter) const {
  if (parameter < parameters_.size()) return zero::ParameterId{parameter};
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", parameter, " does not exist; the engine has ", parameters_.size()));
}

absl::StatusOr<uint64_t> EngineObject::Elements(uint32_t parameter) const {
  if (const auto id = Id(parameter); !id.ok()) return id.status();
  const std::vector<int64_t>& shape = parameters_[parameter].shape;
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<uint64_t>());
}

zero::DataType EngineObject::TypeOf(uint32_t parameter) const {
  return parameters_[parameter].data_type.value_or(data_type_);
}

bool EngineObject::IsOnHost() const {
  return session_->session->device_description().kind != DeviceKind::kCuda;
}

absl::StatusOr<zero::ActivationStore*> EngineObject::Activations() const {
  zero::ActivationStore* const store = activations_.load();
  if (store != nullptr) return store;
  return absl::FailedPreconditionError(
      "the engine has no activation store; call geminid_engine_make_activation_store first");
}

uint64_t EngineObject::Add(zero::Operation operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  operations_[next_].operation = std::make_shared<zero::Operation>(std::move(operation));
  return next_++;
}

uint64_t EngineObject::Add(zero::Workspace::Block block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.emplace(next_, std::move(block));
  return next_++;
}

absl::StatusOr<std::shared_ptr<zero::Operation>> EngineObject::Find(uint64_t operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = operations_.find(operation);
  if (found == operations_.end()) return NotOpen(operation);
  return found->second.operation;
}

absl::StatusOr<std::shared_ptr<zero::Operation>> EngineObject::KeepOpen(uint64_t operation) {
  std::shared_ptr<zero::Operation> kept;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = operations_.find(operation);
    if (found == operations_.end()) return NotOpen(operation);
    ++found->second.keepers;
    kept = found->second.operation;
  }
  return std::shared_ptr<zero::Operation>(
      kept.get(), [engine = shared_from_this(), operation](zero::Operation*) {
        engine->EndKeeping(operation);
      });
}

void EngineObject::EndKeeping(uint64_t operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --operations_.at(operation).keepers;
}

absl::StatusOr<std::shared_ptr<zero::Operation>> EngineObject::Take(uint64_t operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = operations_.find(operation);
  if (found == operations_.end()) return NotOpen(operation);
  if (found->second.keepers > 0) return IsKept(operation, found->second.keepers);
  return operations_.extract(found).mapped().operation;
}

std::vector<std::shared_ptr<zero::Operation>> EngineObject::TakeAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<zero::Operation>> all;
  std::erase_if(operations_, [&](auto& entry) {
    if (entry.second.keepers > 0) return false;
    all.push_back(std::move(entry.second.operation));
    return true;
  });
  return all;
}

absl::Status EngineObject::CheckNoneIsKept() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, open] : operations_) {
    if (open.keepers > 0) return IsKept(number, open.keepers);
  }
  return absl::OkStatus();
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
