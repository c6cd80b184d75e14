// Charges for memory that belongs to no session: memory that is being made for one, and memory that
// is being destroyed. While a charge lives, its bytes count against its tenant.
#ifndef GEMINID_DAEMON_CORE_ENGINE_CHARGES_H_
#define GEMINID_DAEMON_CORE_ENGINE_CHARGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/engine/engine_types.h"

namespace geminid::core {

// Memory being made, with the chunks that its session will get; or memory being destroyed.
struct Charge {
  std::string tenant;
  Account account;
  uint64_t bytes = 0;
  SessionId session = kNoSession;  // kNoSession: no session waits for this memory
  SessionId holder = kNoSession;   // whose promised memory this is
  std::vector<ChunkSpec> specs{};
  Allocation allocation{};
  uint64_t number = 0;  // the client's number of the allocation
  size_t entered = 0;   // how many of `specs` are chunks of the session already

  uint64_t promised_chunks() const { return specs.size() - entered; }
};

// All charges of an engine. No id is given twice, so the id of an ended charge names nothing.
class Charges {
 public:
  ChargeId Add(Charge charge) {
    const ChargeId id{++last_};
    charges_.emplace(id, std::move(charge));
    return id;
  }
  // Null: the charge has ended.
  Charge* Find(ChargeId id) {
    const auto found = charges_.find(id);
    return found == charges_.end() ? nullptr : &found->second;
  }
  // ABORTED: the session that it was made for has ended.
  absl::StatusOr<Charge*> FindPromise(ChargeId id) {
    Charge* charge = Find(id);
    if (charge != nullptr && charge->session != kNoSession) return charge;
    return absl::AbortedError("the session ended during the call");
  }
  void End(ChargeId id) { charges_.erase(id); }

  using Map = std::map<ChargeId, Charge>;
  Map::iterator begin() { return charges_.begin(); }
  Map::iterator end() { return charges_.end(); }
  Map::const_iterator begin() const { return charges_.begin(); }
  Map::const_iterator end() const { return charges_.end(); }

 private:
  Map charges_;
  uint64_t last_ = 0;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_CHARGES_H_
