// The objects behind the C interface's handles, and which of them keeps which alive.
#ifndef GEMINID_CLIENT_C_API_OBJECTS_H_
#define GEMINID_CLIENT_C_API_OBJECTS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/c_api/handles.h"
#include "geminid/activation_store.h"
#include "geminid/c_api.h"
#include "geminid/communicator.h"
#include "geminid/private_daemon.h"
#include "geminid/rank_info.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::c_api {

struct SessionObject {
  std::unique_ptr<PrivateDaemon> daemon;  // ends after the session
  std::unique_ptr<Session> session;
};

// Any thread may use it, but its communicator is for one thread at a time.
class RanksObject {
 public:
  RanksObject(collectives::RankInfo info, std::unique_ptr<collectives::Communicator> ranks)
      : info_(std::move(info)), ranks_(std::move(ranks)) {}

  const collectives::RankInfo& info() const { return info_; }
  // The communicator while the result lives. Another thread's call waits until then.
  struct LockedRanks {
    std::unique_lock<std::mutex> lock;
    collectives::Communicator* ranks = nullptr;
  };
  LockedRanks Take() { return {std::unique_lock(mutex_), ranks_.get()}; }

 private:
  const collectives::RankInfo info_;
  std::mutex mutex_;
  const std::unique_ptr<collectives::Communicator> ranks_;
};

// An engine, and its operations and blocks that have begun and not ended.
class EngineObject : public std::enable_shared_from_this<EngineObject> {
 public:
  // `data_type`: of parameters that name none.
  EngineObject(std::shared_ptr<SessionObject> session, std::shared_ptr<RanksObject> ranks,
               std::vector<zero::Parameter> parameters, zero::DataType data_type,
               std::unique_ptr<zero::Engine> engine);

  // FAILED_PRECONDITION in a forked child.
  absl::Status CheckUsable() const;
  zero::Engine& engine() { return *engine_; }
  RanksObject& ranks() { return *ranks_; }
  const std::vector<zero::Parameter>& parameters() const { return parameters_; }

  // INVALID_ARGUMENT if there is no such parameter; says how many there are.
  absl::StatusOr<zero::ParameterId> Id(uint32_t parameter) const;
  absl::StatusOr<uint64_t> Elements(uint32_t parameter) const;
  zero::DataType TypeOf(uint32_t parameter) const;
  bool IsOnHost() const;

  // FAILED_PRECONDITION if none was made.
  absl::StatusOr<zero::ActivationStore*> Activations() const;
  void SetActivations(zero::ActivationStore* of_engine) { activations_.store(of_engine); }

  uint64_t Add(zero::Operation operation);
  uint64_t Add(zero::Workspace::Block block);
  // INVALID_ARGUMENT if there is no such operation. The operation lives while the caller uses it,
  // even if another thread finishes it.
  absl::StatusOr<std::shared_ptr<zero::Operation>> Find(uint64_t operation);
  // As Find; but until all pointers that this returned for the operation have ended, Take refuses
  // it. They keep the engine alive too.
  absl::StatusOr<std::shared_ptr<zero::Operation>> KeepOpen(uint64_t operation);
  // FAILED_PRECONDITION if KeepOpen holds it open.
  absl::StatusOr<std::shared_ptr<zero::Operation>> Take(uint64_t operation);
  // Takes all operations that are not held open.
  std::vector<std::shared_ptr<zero::Operation>> TakeAll();
  // FAILED_PRECONDITION names an operation that is held open.
  absl::Status CheckNoneIsKept();
  bool Release(uint64_t block);

 private:
  struct Open {
    std::shared_ptr<zero::Operation> operation;
    uint64_t keepers = 0;
  };

  void EndKeeping(uint64_t operation);

  const std::shared_ptr<SessionObject> session_;
  const std::shared_ptr<RanksObject> ranks_;
  const std::vector<zero::Parameter> parameters_;
  const zero::DataType data_type_;
  const std::unique_ptr<zero::Engine> engine_;
  std::atomic<zero::ActivationStore*> activations_{nullptr};  // owned by the engine
  std::mutex mutex_;
  uint64_t next_ = 1;  // operations and blocks share this numbering
  std::map<uint64_t, Open> operations_;
  std::map<uint64_t, zero::Workspace::Block> blocks_;
};

// Never destroyed, so that nothing is torn down while threads still run.
HandleTable<geminid_session, SessionObject>& Sessions();
HandleTable<geminid_ranks, RanksObject>& AllRanks();
HandleTable<geminid_engine, EngineObject>& Engines();

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_OBJECTS_H_
