// What the ranks tell each other about a micro-batch: whether they ran the same operators, and the
// worst that any of them measured, so that all decide alike.
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
  // `ranks` outlives this. `names`: what a chunk of a trace is, in words.
  RankAgreement(collectives::Communicator* ranks, std::function<std::string(uint32_t chunk)> names)
      : ranks_(ranks), names_(std::move(names)) {}

  // FAILED_PRECONDITION naming `what`.
  absl::Status CheckSame(uint64_t value, const char* what);

  // INVALID_ARGUMENT naming the first field of `what` that is not the same on all ranks, and what
  // it is on each.
  absl::Status CheckSameFields(const char* what, const AgreedFields& fields);
  // The same where it is known already that they differ.
  absl::Status NameDifference(const char* what, const AgreedFields& fields);

  // INVALID_ARGUMENT naming the first operator of the moments in which ranks differ, and who used
  // what there.
  absl::Status CheckSameOperators(const std::vector<TraceMoment>& moments);

  // What differs between ranks becomes the worst of all: the smallest arena, the largest workspace,
  // the slowest link and operator. The moments' operators must be the same.
  absl::Status AgreeOnTrace(Trace* trace);

  // The greatest of all ranks, each; not negative.
  absl::Status Worst(std::vector<double>* values);
  // The least of all ranks' numbers, which are below `bound`; nothing: no rank has one.
  absl::StatusOr<std::optional<uint32_t>> Least(std::optional<uint32_t> mine, uint32_t bound);

 private:
  absl::Status NameUses(const std::vector<TraceMoment>& moments, size_t moment);

  collectives::Communicator* const ranks_;
  const std::function<std::string(uint32_t chunk)> names_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_RANK_AGREEMENT_H_
