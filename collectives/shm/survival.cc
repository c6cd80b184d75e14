#include "collectives/shm/survival.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/failure.h"

namespace geminid::collectives {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};

enum Progress : uint32_t { kCame = 1, kConnected = 2, kFailed = 3 };
constexpr uint32_t kProgressBits = 2;

uint32_t Word(uint32_t attempt, Progress progress) { return attempt << kProgressBits | progress; }
uint32_t AttemptOf(uint32_t word) { return word >> kProgressBits; }

class Shrinking {
 public:
  Shrinking(const ShmGroup& group, const std::string& name, const ShmOptions& options,
            absl::Duration timeout)
      : group_(group),
        name_(name),
        options_(options),
        timeout_(timeout),
        deadline_(base::Deadline::In(timeout)) {}

  absl::StatusOr<Survivors> Run(uint32_t* attempt) {
    for (;;) {
      *attempt = std::max(*attempt, LatestAttempt());
      // Ranks that are ahead have found the earlier attempts bad.
      if (AttemptOf(WordOf(group_.rank())) == *attempt) ++*attempt;
      Say(*attempt, kCame);
      GEMINID_RETURN_IF_ERROR(AwaitAll(Word(*attempt, kCame), *attempt));
      if (LatestAttempt() > *attempt) continue;
      Survivors survivors;
      survivors.ranks = Members(*attempt);
      auto connected = Connect(*attempt, survivors.ranks);
      Say(*attempt, connected.ok() ? kConnected : kFailed);
      GEMINID_RETURN_IF_ERROR(AwaitAll(Word(*attempt, kConnected), *attempt));
      if (!AllConnected(*attempt, survivors.ranks)) {
        if (!connected.ok() && deadline_.Passed()) return connected.status();
        continue;
      }
      survivors.communicator = *std::move(connected);
      return survivors;
    }
  }

 private:
  uint32_t WordOf(int rank) const {
    return group_.segment().control(rank).survival.value.load(std::memory_order_seq_cst);
  }
  void Say(uint32_t attempt, Progress progress) {
    group_.segment().control(group_.rank()).survival.Set(Word(attempt, progress));
  }

  uint32_t LatestAttempt() const {
    uint32_t latest = 0;
    for (int r = 0; r < group_.world_size(); ++r) latest = std::max(latest, AttemptOf(WordOf(r)));
    return latest;
  }

  // Waits until every rank has written `word` or more, or is gone. A rank that is gone may have
  // written just before: read its word afterwards.
  absl::Status AwaitAll(uint32_t word, uint32_t attempt) {
    for (int r = 0; r < group_.world_size(); ++r) {
      while (WordOf(r) < word && !group_.IsGone(r)) {
        if (deadline_.Passed()) {
          Say(attempt, kFailed);
          return ShrinkTimeoutError(Absent(word), group_.NameOf(group_.rank()), timeout_);
        }
        std::this_thread::sleep_for(kBetweenLooks);
      }
    }
    return absl::OkStatus();
  }

  std::vector<int> Absent(uint32_t word) const {
    std::vector<int> absent;
    for (int r = 0; r < group_.world_size(); ++r) {
      if (WordOf(r) < word && !group_.IsGone(r)) absent.push_back(group_.NameOf(r));
    }
    return absent;
  }

  std::vector<int> Members(uint32_t attempt) const {
    std::vector<int> members;
    for (int r = 0; r < group_.world_size(); ++r) {
      if (AttemptOf(WordOf(r)) >= attempt) members.push_back(r);
    }
    return members;
  }

  bool AllConnected(uint32_t attempt, const std::vector<int>& members) const {
    return std::all_of(members.begin(), members.end(),
                       [&](int r) { return WordOf(r) == Word(attempt, kConnected); });
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(uint32_t attempt,
                                                        const std::vector<int>& members) const {
    ShmOptions options = options_;
    options.first_rank = 0;
    options.timeout = timeout_;
    options.connect_timeout = absl::FromChrono(deadline_.Left());
    options.look = [&]() -> absl::Status {
      for (const int r : members) {
        if (WordOf(r) != Word(attempt, kCame) && WordOf(r) != Word(attempt, kConnected)) {
          return absl::UnavailableError("another rank could not connect");
        }
        if (group_.IsGone(r)) return DeathError(r);
      }
      return absl::OkStatus();
    };
    const auto own = std::find(members.begin(), members.end(), group_.rank());
    return ConnectShm(absl::StrCat(name_, "/survivors/", attempt),
                      static_cast<int>(own - members.begin()), static_cast<int>(members.size()),
                      options);
  }

  const ShmGroup& group_;
  const std::string& name_;
  const ShmOptions& options_;
  const absl::Duration timeout_;
  const base::Deadline deadline_;
};

}  // namespace

absl::StatusOr<Survivors> ShrinkShm(const ShmGroup& group, const std::string& name,
                                    const ShmOptions& options, absl::Duration timeout,
                                    uint32_t* attempt) {
  return Shrinking(group, name, options, timeout).Run(attempt);
}

}  // namespace geminid::collectives
