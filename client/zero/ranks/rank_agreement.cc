#include "client/zero/ranks/rank_agreement.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace geminid::zero {
namespace {

using collectives::ReduceOp;

// Chunks of an operator in the message about operators that differ.
constexpr size_t kMostChunksNamed = 8;

// Words of a field's text that ranks exchange.
constexpr size_t kFieldWords = 24;

int64_t HashOf(const TraceMoment& moment) {
  base::Fnv1a hash;
  hash.Add(moment.uses.size());
  for (const TraceUse& use : moment.uses) hash.Add(uint64_t{use.index} << 1 | use.invalidates);
  return static_cast<int64_t>(hash.value());
}

}  // namespace

absl::Status RankAgreement::CheckSame(uint64_t value, const char* what) {
  std::vector<int64_t> least = {static_cast<int64_t>(value)};
  std::vector<int64_t> most = least;
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(least, least, ReduceOp::kMin));
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(most, most, ReduceOp::kMax));
  if (least == most) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks disagree about ", what,
                   "; all ranks must run the same operators in the same order"));
}

absl::Status RankAgreement::CheckSameFields(const char* what, const AgreedFields& fields) {
  FieldsDigest sums = DigestOf(fields);
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(sums, sums, ReduceOp::kSum));
  return SameOnAll(sums, ranks_->WorldSize()) ? absl::OkStatus() : NameDifference(what, fields);
}

// A collective. A rank with fewer fields differs in one of the fields before the end of its list.
absl::Status RankAgreement::NameDifference(const char* what, const AgreedFields& fields) {
  std::vector<int64_t> least = {static_cast<int64_t>(fields.size())};
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(least, least, ReduceOp::kMin));
  std::vector<int64_t> low;
  for (int64_t i = 0; i < least[0]; ++i) {
    low.push_back(static_cast<int64_t>(fields[static_cast<size_t>(i)].Hash()));
  }
  std::vector<int64_t> high = low;
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(low, low, ReduceOp::kMin));
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(high, high, ReduceOp::kMax));
  const auto first = static_cast<size_t>(std::ranges::mismatch(low, high).in1 - low.begin());
  std::vector<int64_t> own(kFieldWords);
  if (first < fields.size()) {
    const std::string text = absl::StrCat(fields[first].name, " ", fields[first].value);
    std::memcpy(own.data(), text.data(), std::min(text.size(), kFieldWords * sizeof(int64_t) - 1));
  }
  std::vector<int64_t> all(own.size() * static_cast<size_t>(ranks_->WorldSize()));
  GEMINID_RETURN_IF_ERROR(ranks_->AllGather(own, all));
  std::string who;
  for (size_t rank = 0; rank < all.size() / own.size(); ++rank) {
    const char* text = reinterpret_cast<const char*>(&all[rank * own.size()]);
    absl::StrAppend(&who, rank == 0 ? "" : ", ", "rank ", rank, " has ", text);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " differs between ranks: ", who, "; give all ranks the same"));
}

absl::Status RankAgreement::CheckSameOperators(const std::vector<TraceMoment>& moments) {
  std::vector<int64_t> hashes;
  base::Fnv1a all;
  for (const TraceMoment& moment : moments) {
    hashes.push_back(HashOf(moment));
    all.Add(static_cast<uint64_t>(hashes.back()));
  }
  const int64_t count = static_cast<int64_t>(moments.size());
  std::vector<int64_t> least = {static_cast<int64_t>(all.value()), count};
  std::vector<int64_t> most = least;
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(least, least, ReduceOp::kMin));
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(most, most, ReduceOp::kMax));
  if (least == most) return absl::OkStatus();

  hashes.resize(static_cast<size_t>(least[1]));
  size_t first = hashes.size();
  if (!hashes.empty()) {
    std::vector<int64_t> low = hashes;
    std::vector<int64_t> high = hashes;
    GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(low, low, ReduceOp::kMin));
    GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(high, high, ReduceOp::kMax));
    first = static_cast<size_t>(std::ranges::mismatch(low, high).in1 - low.begin());
  }
  return NameUses(moments, first);
}

// A collective.
absl::Status RankAgreement::NameUses(const std::vector<TraceMoment>& moments, size_t moment) {
  std::vector<int64_t> own(kMostChunksNamed, -1);
  if (moment < moments.size()) {
    const std::vector<TraceUse>& uses = moments[moment].uses;
    for (size_t i = 0; i < std::min(uses.size(), own.size()); ++i) own[i] = uses[i].index;
  }
  std::vector<int64_t> all(own.size() * static_cast<size_t>(ranks_->WorldSize()));
  GEMINID_RETURN_IF_ERROR(ranks_->AllGather(own, all));
  std::string who;
  for (int rank = 0; rank < ranks_->WorldSize(); ++rank) {
    absl::StrAppend(&who, rank == 0 ? "" : ", ", "rank ", rank, " used");
    const int64_t* chunks = &all[static_cast<size_t>(rank) * own.size()];
    if (chunks[0] < 0) absl::StrAppend(&who, " nothing");
    for (size_t i = 0; i < own.size() && chunks[i] >= 0; ++i) {
      absl::StrAppend(&who, i == 0 ? " " : " and ", names_(static_cast<uint32_t>(chunks[i])));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the ranks disagree about operator ", moment,
                   " of the micro-batch (gradients added one by one count, too): ", who,
                   "; all ranks must run the same operators in the same order"));
}

absl::Status RankAgreement::AgreeOnTrace(Trace* trace) {
  std::vector<int64_t> least = {static_cast<int64_t>(trace->arena_bytes)};
  std::vector<double> speed = {trace->link.host_to_device_bytes_per_second};
  std::vector<int64_t> workspace;
  std::vector<double> seconds;
  for (const TraceMoment& moment : trace->moments) {
    workspace.push_back(static_cast<int64_t>(moment.workspace_bytes));
    seconds.push_back(moment.compute_seconds);
  }
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(least, least, ReduceOp::kMin));
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(speed, speed, ReduceOp::kMin));
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(workspace, workspace, ReduceOp::kMax));
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(seconds, seconds, ReduceOp::kMax));
  trace->arena_bytes = static_cast<uint64_t>(least[0]);
  trace->link.host_to_device_bytes_per_second = speed[0];
  trace->link.device_to_host_bytes_per_second = speed[0];
  for (size_t m = 0; m < trace->moments.size(); ++m) {
    trace->moments[m].workspace_bytes = static_cast<uint64_t>(workspace[m]);
    trace->moments[m].compute_seconds = seconds[m];
  }
  return absl::OkStatus();
}

absl::Status RankAgreement::Worst(std::vector<double>* values) {
  return ranks_->AllReduce(*values, *values, ReduceOp::kMax);
}

absl::StatusOr<std::optional<uint32_t>> RankAgreement::Least(std::optional<uint32_t> mine,
                                                             uint32_t bound) {
  // The least number has the greatest distance from `bound`; a rank without one has distance 0.
  std::vector<double> distance = {mine.has_value() ? static_cast<double>(bound - *mine) : 0.0};
  GEMINID_RETURN_IF_ERROR(Worst(&distance));
  if (distance[0] == 0) return std::nullopt;
  return bound - static_cast<uint32_t>(distance[0]);
}

}  // namespace geminid::zero
