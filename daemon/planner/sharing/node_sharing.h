// Decides which job of a node to ask for another number of ranks, when and why. Runs ShareByGoodput
// over time.
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

// The state of a job, for people.
struct JobShare {
  uint64_t best_ranks = 0;  // the reported number with the most goodput; 0: the job reports none
  // In goodput, of best_ranks over the present number: 0.1 is a tenth more.
  double gain = 0;
  std::string why;  // why the job has its present number of ranks
};

// Pure: the caller passes the jobs and the time in seconds. There is one request at a time. The
// next follows only after Done or Refused has reported the result of the last.
//
// No job gets less than its smallest row or less than its guarantee. A job that refuses gets no
// request for twice the interval, and for twice as long after each further refusal. Nothing is
// known from an earlier daemon: a job keeps its ranks for one interval after its first appearance.
class NodeSharing {
 public:
  explicit NodeSharing(const SharingSettings& settings) : settings_(settings) {}

  // Reports that a job has this many ranks. The time of the change is stored.
  void Saw(const JobKey& job, uint64_t ranks, double now);
  // Reports the end of a job. A later job of the same name is another job.
  void Ended(const JobKey& job);
  // Whether Next may return a request. If false, the caller need not call Next.
  bool IsDue(double now) const { return !pending_ && (!plan_.empty() || now >= decide_at_); }
  // The request to make now, if any. `room` is the room of the node for all of `jobs` together.
  // Makes new decisions at most once an interval.
  std::optional<RanksRequest> Next(const Share& room, std::span<const NodeJob> jobs, double now);
  // The result of the pending request.
  void Done(double now);
  void Refused(const std::string& why, double now);
  const std::optional<RanksRequest>& pending() const { return pending_; }

  // The job's share at the last decision.
  JobShare ShareOf(const JobKey& job, double now) const;

 private:
  struct Entry {
    uint64_t ranks = 0;
    double since = 0;  // when the job got its ranks
    double seen = 0;
    int refusals = 0;  // since the job last fulfilled a request
    uint64_t refused_ranks = 0;
    double not_before = -std::numeric_limits<double>::infinity();  // no request earlier
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
