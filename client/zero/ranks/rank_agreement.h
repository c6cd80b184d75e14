// The exchange of ranks about a micro-batch: whether all ran the same operators, and the worst
// measurement of any rank, so that all decide alike.
#ifndef GEMINID_CLIENT_ZERO_RANKS_RANK_AGREEMENT_H_
#define GEMINID_CLIENT_ZERO_RANKS_RANK_AGREEMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/options/agreed_fields.h"
#include "geminid/communicator.h"
#include "geminid/plan.h"

namespace geminid::zero {

class RankAgreement {
 public:
  // `ranks` outlives this object. `names`: a chunk of a trace as messages name it.
  RankAgreement(collectives::Communicator* ranks, std::function<std::string(uint32_t chunk)> names)
      : ranks_(ranks), names_(std::move(names)) {}

  // FAILED_PRECONDITION, naming `what`, if `value` differs between ranks.
  absl::Status CheckSame(uint64_t value, const char* what);

  // INVALID_ARGUMENT names the first field of `what` that differs between ranks, and its value on
  // each rank.
  absl::Status CheckSameFields(const char* what, const AgreedFields& fields);
  // The same error, for fields that are already known to differ.
  absl::Status NameDifference(const char* what, const AgreedFields& fields);

  // INVALID_ARGUMENT names the first operator of the moments that differs between ranks, and which
  // rank used which chunks there.
  absl::Status CheckSameOperators(const std::vector<TraceMoment>& moments);

  // Each value that differs between ranks becomes the worst of all ranks: the smallest arena, the
  // largest workspace, the slowest link and operator. All ranks must have the same operators.
  absl::Status AgreeOnTrace(Trace* trace);

  // Replaces each value, none of them negative, by the greatest of all ranks.
  absl::Status Worst(std::vector<double>* values);
  // The least of all ranks' numbers, which are below `bound`. nullopt: no rank has a number.
  absl::StatusOr<std::optional<uint32_t>> Least(std::optional<uint32_t> mine, uint32_t bound);

 private:
  absl::Status NameUses(const std::vector<TraceMoment>& moments, size_t moment);

  collectives::Communicator* const ranks_;
  const std::function<std::string(uint32_t chunk)> names_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_RANK_AGREEMENT_H_
