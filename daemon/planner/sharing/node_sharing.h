// Which job of a node to ask for another number of ranks, when and why: ShareByGoodput over time.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_NODE_SHARING_H_
#define GEMINID_DAEMON_PLANNER_SHARING_NODE_SHARING_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/planner/sharing/node_job.h"
#include "daemon/planner/sharing/share_by_goodput.h"

namespace geminid::planner {

struct RanksRequest {
  JobKey job;
  uint64_t from = 0;
  uint64_t to = 0;
  std::string why;  // in words
};

// How a job stands, for people.
struct JobShare {
  uint64_t best_ranks = 0;  // the number with the most goodput that it says; 0: it says none
  double gain = 0;          // of that, beyond what it has: 0.1 is a tenth more
  std::string why;          // it has the number that it has
};

// Pure: it is handed the jobs and the time in seconds. One request at a time: none follows before
// it is told what became of the last one.
//
// No job is given less than its smallest row, or than what it is guaranteed. A job that refuses is
// left alone for twice the interval, and twice as long after each further refusal. Nothing is
// remembered of a daemon before: a job that it sees for the first time keeps its ranks for an
// interval.
class NodeSharing {
 public:
  explicit NodeSharing(const SharingSettings& settings) : settings_(settings) {}

  // A job has so many ranks: from when on it does is remembered.
  void Saw(const JobKey& job, uint64_t ranks, double now);
  // A later job of the name is another one.
  void Ended(const JobKey& job);
  // Whether Next may have a request. If not, it need not be called.
  bool IsDue(double now) const { return !pending_ && (!plan_.empty() || now >= decide_at_); }
  // The request to make now, if any. `room`: of the node, for all of `jobs` together. It looks for
  // what should change at most once an interval.
  std::optional<RanksRequest> Next(const Share& room, std::span<const NodeJob> jobs, double now);
  // What became of it.
  void Done(double now);
  void Refused(const std::string& why, double now);
  const std::optional<RanksRequest>& pending() const { return pending_; }

  // As it was at the last look.
  JobShare ShareOf(const JobKey& job, double now) const;

 private:
  struct Entry {
    uint64_t ranks = 0;
    double since = 0;  // it has them
    double seen = 0;
    int refusals = 0;  // since a request was done
    uint64_t refused_ranks = 0;
    double not_before = -std::numeric_limits<double>::infinity();  // no request
    std::string refusal;
    JobShare share;
  };
  struct Look;

  bool StillFits(const RanksRequest& request, const Share& room,
                 std::span<const NodeJob> jobs) const;
  std::string WhyFixed(const NodeJob& job, double now) const;
  void Decide(const Share& room, std::span<const NodeJob> jobs, double now);
  void PlanMoves(const Look& look, const SharingDecision& decision);
  std::string WhyMove(const Look& look, const SharingDecision& decision, std::size_t j) const;
  void Explain(const Look& look, const SharingDecision& decision);
  std::string WhyStays(const Look& look, const SharingDecision& decision, std::size_t j) const;
  void Forget(double now);

  SharingSettings settings_;
  std::map<JobKey, Entry> entries_;
  std::deque<RanksRequest> plan_;
  std::optional<RanksRequest> pending_;
  double decide_at_ = -std::numeric_limits<double>::infinity();
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_NODE_SHARING_H_
