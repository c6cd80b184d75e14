#include "daemon/config/reload.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace geminid::config {
namespace {

bool CanChange(const std::string& key) {
  static constexpr const char* kKeys[] = {"log_level",           "log_format",   "keep_time",
                                          "gather_time",         "queue_ageing", "yield_time",
                                          "link_bytes_in_flight"};
  const auto is_key = [&key](const ShareKey& share) { return key == share.key; };
  return absl::StartsWith(key, "quotas[") ||
         std::any_of(kShareKeys.begin(), kShareKeys.end(), is_key) ||
         std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&key](const char* each) { return key == each; });
}

// Values computed from the machine count as none: they do not change while the daemon runs.
std::map<std::string, std::string> ValuesOf(const Settings& settings) {
  std::map<std::string, std::string> values;
  for (const Origin& origin : settings.origins) {
    const bool chosen = origin.origin == kFromMachine;
    values[origin.key] = chosen ? "" : origin.value;
  }
  return values;
}

std::string ShownValue(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() || found->second.empty() ? "none" : found->second;
}

}  // namespace

Reload MergeReload(const Settings& now, const Settings& read) {
  Reload reload;
  reload.settings = now;
  reload.settings.log_level = read.log_level;
  reload.settings.log_format = read.log_format;
  reload.settings.keep_time = read.keep_time;
  reload.settings.gather_time = read.gather_time;
  reload.settings.queue_ageing = read.queue_ageing;
  reload.settings.yield_time = read.yield_time;
  reload.settings.link_bytes_in_flight = read.link_bytes_in_flight;
  reload.settings.quotas = read.quotas;
  reload.settings.shares = read.shares;
  SetShares(read.shares, &reload.settings.effective);
  reload.settings.effective.set_log_level(read.effective.log_level());
  reload.settings.effective.set_log_format(read.effective.log_format());
  reload.settings.effective.set_keep_time(read.effective.keep_time());
  reload.settings.effective.set_gather_time(read.effective.gather_time());
  reload.settings.effective.set_queue_ageing(read.effective.queue_ageing());
  reload.settings.effective.set_yield_time(read.effective.yield_time());
  reload.settings.effective.set_link_bytes_in_flight(read.effective.link_bytes_in_flight());
  *reload.settings.effective.mutable_quotas() = read.effective.quotas();

  std::vector<Origin>& origins = reload.settings.origins;
  std::erase_if(origins, [](const Origin& origin) { return CanChange(origin.key); });
  std::copy_if(read.origins.begin(), read.origins.end(), std::back_inserter(origins),
               [](const Origin& origin) { return CanChange(origin.key); });

  const std::map<std::string, std::string> before = ValuesOf(now);
  const std::map<std::string, std::string> after = ValuesOf(read);
  std::set<std::string> keys;
  for (const auto& [key, value] : before) keys.insert(key);
  for (const auto& [key, value] : after) keys.insert(key);
  for (const std::string& key : keys) {
    const std::string was = ShownValue(before, key);
    const std::string is = ShownValue(after, key);
    if (was == is) continue;
    (CanChange(key) ? reload.changed : reload.needs_restart)
        .push_back(absl::StrCat(key, ": ", was, " -> ", is));
  }
  return reload;
}

}  // namespace geminid::config
