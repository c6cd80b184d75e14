#include "client/zero/ranks/failure_of_any.h"

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/basics/patience.h"

namespace geminid::zero {
namespace {

constexpr size_t kMostWords = 2048;  // bytes of an error's message that ranks exchange

// Ranks that failed by themselves come before those that others aborted.
int64_t WeightOf(const absl::Status& status) {
  if (status.ok()) return 0;
  return absl::IsAborted(status) ? 1 : 2;
}

}  // namespace

absl::Status FailureOfAny(collectives::Communicator* ranks, const absl::Status& mine,
                          absl::Duration timeout) {
  const int64_t world = ranks->WorldSize();
  if (world == 1) return mine;
  const Patience patience(ranks, timeout);
  std::vector<int64_t> worst = {WeightOf(mine) * world + (world - 1 - ranks->Rank())};
  absl::Status told = ranks->AllReduce(worst, worst, collectives::ReduceOp::kMax);
  if (told.ok() && worst[0] < world) return absl::OkStatus();
  const auto first = static_cast<int>(world - 1 - worst[0] % world);
  std::array<char, kMostWords> words{};
  if (told.ok()) {
    if (first == ranks->Rank()) mine.message().copy(words.data(), words.size() - 1);
    told = ranks->Broadcast({words.data(), words.size(), collectives::DType::kUint8}, first);
  }
  if (!mine.ok() && (!told.ok() || !absl::IsAborted(mine) || first == ranks->Rank())) return mine;
  GEMINID_RETURN_IF_ERROR(told);
  return absl::AbortedError(absl::StrCat("rank ", first, ": ", words.data()));
}

}  // namespace geminid::zero
