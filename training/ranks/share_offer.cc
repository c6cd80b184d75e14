#include "training/ranks/share_offer.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "training/ranks/daemon_choice.h"

namespace geminid::trainer {
namespace {

// A run that ends so soon gains nothing by other ranks.
constexpr double kSoonSeconds = 10;
// A person may have asked for a number outside of the run's range before the run was shared. Such
// a number counts so little that the daemon gives the run a number of its range when there is room.
constexpr double kOutsideOfRange = 1e-3;
// As many as the daemon looks at.
constexpr size_t kMostNumbers = 64;

}  // namespace

void ShareOffer::AfterStep(const ShareStep& step) {
  timer_.Add(step.sequences, step.seconds);
  sequences_left_ = step.sequences_left;
  const std::optional<double> seconds = timer_.Median();
  if (seconds) context_.handover->NoteSequenceSeconds(context_.info.world_size, *seconds);
}

RanksRange ShareOffer::Range() const { return context_.handover->share().value_or(RanksRange{}); }

// That the run may have, with the one that it has.
std::vector<int> ShareOffer::Numbers() const {
  std::vector<int> numbers = {context_.info.world_size};
  const RanksRange range = Range();
  for (int ranks = range.least; ranks <= range.most && numbers.size() < kMostNumbers; ++ranks) {
    if (ranks < 1 || ranks == context_.info.world_size) continue;
    if (!context_.check_ranks || context_.check_ranks(ranks).ok()) numbers.push_back(ranks);
  }
  return numbers;
}

JobScaling::Share ShareOffer::Make(uint64_t arena_bytes) const {
  JobScaling::Share share;
  share.remaining = static_cast<double>(sequences_left_);
  const std::optional<double> seconds = timer_.Median();
  if (!seconds) {
    share.why_not = "it has not timed enough steps with this number of ranks yet";
    return share;
  }
  if (share.remaining * *seconds < kSoonSeconds) {
    share.why_not = absl::StrCat("it ends within ", kSoonSeconds, " s");
    return share;
  }
  const RanksRange range = Range();
  for (const RanksGoodput& row : GoodputByRanks(context_.handover->SequenceSeconds(), Numbers())) {
    const uint64_t of_rank =
        RankDeviceBytes(options_, {context_.info.world_size, arena_bytes}, row.ranks);
    const bool in_range = row.ranks >= range.least && row.ranks <= range.most;
    share.rows.push_back({row.ranks, of_rank * static_cast<uint64_t>(row.ranks),
                          in_range ? row.goodput : kOutsideOfRange * row.goodput});
  }
  return share;
}

}  // namespace geminid::trainer
