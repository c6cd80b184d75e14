// What the handles of the C interface stand for, and who keeps whom alive.
#ifndef GEMINID_CLIENT_C_API_OBJECTS_H_
#define GEMINID_CLIENT_C_API_OBJECTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "client/c_api/handles.h"
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
class EngineObject {
 public:
  EngineObject(std::shared_ptr<SessionObject> session, std::shared_ptr<RanksObject> ranks,
               std::vector<zero::Parameter> parameters, std::unique_ptr<zero::Engine> engine);

  zero::Engine& engine() { return *engine_; }
  collectives::Communicator* ranks() { return ranks_->ranks.get(); }
  const std::vector<zero::Parameter>& parameters() const { return parameters_; }

  // INVALID_ARGUMENT with how many there are.
  absl::StatusOr<zero::ParameterId> Id(uint32_t parameter) const;
  absl::StatusOr<uint64_t> Elements(uint32_t parameter) const;

  uint64_t Add(zero::Operation operation);
  uint64_t Add(zero::Workspace::Block block);
  // Null: there is no such operation. It lives while it is used, whoever finishes it meanwhile.
  std::shared_ptr<zero::Operation> Find(uint64_t operation);
  std::shared_ptr<zero::Operation> Take(uint64_t operation);
  std::vector<std::shared_ptr<zero::Operation>> TakeAll();
  bool Release(uint64_t block);

 private:
  const std::shared_ptr<SessionObject> session_;
  const std::shared_ptr<RanksObject> ranks_;
  const std::vector<zero::Parameter> parameters_;
  const std::unique_ptr<zero::Engine> engine_;
  std::mutex mutex_;
  uint64_t next_ = 1;  // operations and blocks have no number in common
  std::map<uint64_t, std::shared_ptr<zero::Operation>> operations_;
  std::map<uint64_t, zero::Workspace::Block> blocks_;
};

// They outlive every other object of the process, so that nothing is torn down while threads run.
HandleTable<geminid_session, SessionObject>& Sessions();
HandleTable<geminid_ranks, RanksObject>& AllRanks();
HandleTable<geminid_engine, EngineObject>& Engines();

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_OBJECTS_H_
