// The amounts of a node that a job may get, and the goodput of the job with each amount.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_SHARE_H_
#define GEMINID_DAEMON_PLANNER_SHARING_SHARE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace geminid::planner {

inline constexpr std::size_t kResources = 3;

// Amounts of a node, over all of its devices.
struct Share {
  std::uint64_t memory_bytes = 0;
  std::uint64_t ranks = 0;
  std::uint64_t link_bytes_per_second = 0;

  std::array<std::uint64_t, kResources> amounts() const {
    return {memory_bytes, ranks, link_bytes_per_second};
  }
  bool operator==(const Share&) const = default;
};

// One amount that a job could have, and its goodput with that amount, in any unit of work a second.
// A job has a row for each amount that suits it. More need not be better, nor better in proportion.
struct GoodputRow {
  Share share;
  double goodput = 0;
};

struct SharingJob {
  std::uint64_t id = 0;
  std::int32_t priority = 0;
  // The job's row is never below in any of the three; all 0: it may have to wait.
  Share guarantee{};
  std::vector<GoodputRow> rows{};
  std::optional<double> remaining{};  // work, in the unit of its rows; nothing: not known
  std::optional<std::size_t> row{};   // that the job has; nothing: it waits
  double since = 0;                   // seconds: when the job got its row, or came
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_SHARE_H_
