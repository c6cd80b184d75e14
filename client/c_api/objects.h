// What the handles of the C interface stand for, and who keeps whom alive.
#ifndef GEMINID_CLIENT_C_API_OBJECTS_H_
#define GEMINID_CLIENT_C_API_OBJECTS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
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

struct RanksObject {
  collectives::RankInfo info;
  std::unique_ptr<collectives::Communicator> ranks;
};

// An engine, and what was begun on it and not ended.
class EngineObject : public std::enable_shared_from_this<EngineObject> {
 public:
  // `data_type`: of parameters that name none.
  EngineObject(std::shared_ptr<SessionObject> session, std::shared_ptr<RanksObject> ranks,
               std::vector<zero::Parameter> parameters, zero::DataType data_type,
               std::unique_ptr<zero::Engine> engine);

  zero::Engine& engine() { return *engine_; }
  collectives::Communicator* ranks() { return ranks_->ranks.get(); }
  const std::vector<zero::Parameter>& parameters() const { return parameters_; }

  // INVALID_ARGUMENT with how many there are.
  absl::StatusOr<zero::ParameterId> Id(uint32_t parameter) const;
  absl::StatusOr<uint64_t> Elements(uint32_t parameter) const;
  zero::DataType TypeOf(uint32_t parameter) const;
  bool IsOnHost() const;

  // FAILED_PRECONDITION: none was made.
  absl::StatusOr<zero::ActivationStore*> Activations() const;
  void SetActivations(zero::ActivationStore* of_engine) { activations_.store(of_engine); }

  uint64_t Add(zero::Operation operation);
  uint64_t Add(zero::Workspace::Block block);
  // INVALID_ARGUMENT: there is no such operation. It lives while it is used, whoever finishes it
  // meanwhile.
  absl::StatusOr<std::shared_ptr<zero::Operation>> Find(uint64_t operation);
  // The same, and nobody can take it until all that this returned for it have ended. They keep the
  // engine alive, too.
  absl::StatusOr<std::shared_ptr<zero::Operation>> KeepOpen(uint64_t operation);
  // FAILED_PRECONDITION: it is kept open.
  absl::StatusOr<std::shared_ptr<zero::Operation>> Take(uint64_t operation);
  // All that are not kept open.
  std::vector<std::shared_ptr<zero::Operation>> TakeAll();
  // FAILED_PRECONDITION names one that is.
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
  std::atomic<zero::ActivationStore*> activations_{nullptr};  // the engine's
  std::mutex mutex_;
  uint64_t next_ = 1;  // operations and blocks have no number in common
  std::map<uint64_t, Open> operations_;
  std::map<uint64_t, zero::Workspace::Block> blocks_;
};

// They outlive every other object of the process, so that nothing is torn down while threads run.
HandleTable<geminid_session, SessionObject>& Sessions();
HandleTable<geminid_ranks, RanksObject>& AllRanks();
HandleTable<geminid_engine, EngineObject>& Engines();

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_OBJECTS_H_
