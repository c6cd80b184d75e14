#include "training/launch/host_spread.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "training/launch/host_file.h"

namespace geminid::trainer {

absl::StatusOr<HostSpread> HostSpread::From(const collectives::Environment& environment) {
  const char* const text = environment(kHostSlotsVariable);
  if (text == nullptr) return HostSpread();
  std::vector<int> slots;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(word, &number) || number < 1 || number > kRanksMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(kHostSlotsVariable, " is '", text,
                       "', which is not a list of the hosts' slots, such as 4,4"));
    }
    slots.push_back(number);
  }
  return HostSpread(std::move(slots));
}

std::string HostSpread::Text() const { return absl::StrJoin(slots_, ","); }

absl::StatusOr<std::vector<int>> HostSpread::Of(int ranks) const {
  if (!has_list()) return std::vector<int>{ranks};
  std::vector<HostSlots> hosts;
  for (const int slots : slots_) hosts.push_back({.name = "", .ranks = slots});
  GEMINID_ASSIGN_OR_RETURN(const std::vector<HostSlots> taken, TakeSlots(hosts, ranks));
  std::vector<int> ranks_by_host;
  for (const HostSlots& host : taken) ranks_by_host.push_back(host.ranks);
  return ranks_by_host;
}

std::vector<size_t> HostByRank(const std::vector<int>& ranks_by_host) {
  std::vector<size_t> host_by_rank;
  for (size_t host = 0; host < ranks_by_host.size(); ++host) {
    host_by_rank.insert(host_by_rank.end(), static_cast<size_t>(ranks_by_host[host]), host);
  }
  return host_by_rank;
}

}  // namespace geminid::trainer
