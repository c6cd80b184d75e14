#include "tools/geminictl/screen/history.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "tools/geminictl/output/account.h"
#include "tools/geminictl/screen/top_view.h"

namespace geminid::ctl {
namespace {

template <typename Key>
void Push(std::map<Key, std::deque<double>>* series, const Key& key, double share) {
  std::deque<double>& shares = (*series)[key];
  shares.push_back(share);
  if (shares.size() > kHistoryLength) shares.pop_front();
}

template <typename Key>
void Forget(const std::set<Key>& seen, std::map<Key, std::deque<double>>* series) {
  std::erase_if(*series, [&seen](const auto& entry) { return !seen.contains(entry.first); });
}

template <typename Key>
const std::deque<double>& Find(const std::map<Key, std::deque<double>>& series, const Key& key) {
  static const auto* const kUnknown = new std::deque<double>;
  const auto found = series.find(key);
  return found == series.end() ? *kUnknown : found->second;
}

}  // namespace

void History::Add(const Reading& now, const Reading* before) {
  std::set<std::string> accounts;
  for (const v1::TierLedger& tier : now.status.ledger().tiers()) {
    if (tier.capacity_bytes() == 0) continue;
    const std::string account = AccountName(tier);
    accounts.insert(account);
    Push(&tiers_, account,
         static_cast<double>(tier.in_use_bytes() + tier.reserved_bytes()) /
             static_cast<double>(tier.capacity_bytes()));
  }
  Forget(accounts, &tiers_);
  std::set<uint64_t> sessions;
  for (const RankRates& rank : RankByRank(now, before, TopOrder::kStall)) {
    sessions.insert(rank.session->session());
    Push(&stalls_, rank.session->session(), rank.stall_share);
  }
  Forget(sessions, &stalls_);
}

void History::Clear() {
  tiers_.clear();
  stalls_.clear();
}

const std::deque<double>& History::Tier(const std::string& account) const {
  return Find(tiers_, account);
}

const std::deque<double>& History::Stall(uint64_t session) const { return Find(stalls_, session); }

std::string Sparkline(const std::deque<double>& shares, size_t width, const Style& style) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {".", ":", "-", "=", "+", "*", "#", "%", "@"};
  const size_t shown = std::min(width, shares.size());
  std::string line(width - shown, ' ');
  for (auto i = std::prev(shares.end(), static_cast<std::ptrdiff_t>(shown)); i != shares.end();
       ++i) {
    const double share = std::clamp(*i, 0.0, 1.0);
    const double heights =
        static_cast<double>(style.unicode ? std::size(kBlocks) : std::size(kAscii));
    const auto height = static_cast<size_t>(std::ceil(share * heights));
    if (height == 0) {
      line += ' ';
    } else {
      line += style.unicode ? kBlocks[height - 1] : kAscii[height - 1];
    }
  }
  return line;
}

}  // namespace geminid::ctl
