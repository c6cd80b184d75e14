// Counts how often each limit refused each tenant.
#ifndef GEMINID_DAEMON_CORE_ENGINE_REFUSALS_H_
#define GEMINID_DAEMON_CORE_ENGINE_REFUSALS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace geminid::core {

// Not thread-safe. Cost: logarithmic in the rows, which are bounded.
class Refusals {
 public:
  // Further rows count as tenant "other".
  static constexpr size_t kMostRows = 256;

  // `limit`: as in the configuration.
  void Count(const std::string& limit, const std::string& tenant) {
    const std::pair key(limit, tenant);
    const bool has_row = times_.contains(key) || times_.size() < kMostRows;
    ++times_[has_row ? key : std::pair(limit, std::string("other"))];
  }

  struct Row {
    std::string limit;
    std::string tenant;
    uint64_t times = 0;
  };
  // By limit, then tenant.
  std::vector<Row> Read() const {
    std::vector<Row> rows;
    for (const auto& [key, times] : times_) rows.push_back({key.first, key.second, times});
    return rows;
  }

 private:
  std::map<std::pair<std::string, std::string>, uint64_t> times_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_REFUSALS_H_
