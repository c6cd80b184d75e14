// A run whose ranks join, leave and die, simulated: the launcher's decisions (Course), the memory
// of a handover and the daemon's requests are the code that runs; ranks, time and deaths are a
// model.
#ifndef GEMINID_TOOLS_SIM_ELASTIC_ELASTIC_RUN_H_
#define GEMINID_TOOLS_SIM_ELASTIC_ELASTIC_RUN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "daemon/core/basics/time.h"
#include "daemon/service/calls/scale_requests.h"
#include "training/launch/course.h"
#include "training/launch/handover_memory.h"

namespace geminid::sim {

// What happened in runs, added up.
struct ElasticTally {
  uint64_t starts = 0;
  uint64_t deaths = 0;
  uint64_t joined = 0, left = 0;   // ranks, by changes that were done
  uint64_t done = 0, refused = 0;  // requests
  uint64_t shrunk = 0;             // changes to fewer ranks after a death
  uint64_t fell_back = 0;          // to the ranks before, as the new ones do not get on
  uint64_t finished = 0;           // runs that reached their last step
  int most_ranks = 0;
};

// A fault of the model that the checks must find.
enum class ElasticFault { kNone, kImageGoesAtOnce, kRefusalIsForgotten, kOldRanksGoOn };

struct ElasticSettings {
  int most_ranks = 1000;
  double change_chance = 0.1;  // in each step: a person asks for another number of ranks
  // At each point where a rank may die. Not set: each run draws one, up to 0.06.
  std::optional<double> death_chance{};
};

class ElasticRun {
 public:
  explicit ElasticRun(uint64_t seed, const ElasticSettings& settings = {},
                      ElasticFault fault = ElasticFault::kNone);

  // Until the run has ended. What went wrong; empty: nothing.
  std::string Live(ElasticTally* tally);

 private:
  // One group of ranks.
  struct Group {
    trainer::Start start;
    uint64_t session = 0;
    uint64_t step = 0;     // that all have committed
    uint64_t trained = 0;  // by this group
    uint64_t asked = 0;    // the number of the request that its first rank has taken
  };
  struct Open {
    uint64_t number = 0;
    int target = 0;
    core::Time since;
    uint64_t unasked = 0;  // as it was then
  };

  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int RandomRanks();
  // Changes that nobody asked for.
  uint64_t Unasked() const { return tally_->shrunk + tally_->fell_back; }
  void Check(bool good, const std::string& what);

  trainer::StartEnd Run(const trainer::Start& start);
  uint64_t FirstStep(const trainer::Start& start);
  std::optional<trainer::StartEnd> Step(Group* group);
  std::optional<trainer::StartEnd> HandOver(Group* group, int ranks);
  trainer::StartEnd Die(const Group& group, bool while_committing);
  int Poll(Group* group);
  void Tell(Group* group, const std::string& state);
  void TellOutcome(Group* group);
  v1::OfferScaleResponse Offer(const Group& group, uint64_t number, const std::string& state);
  void Operate(const Group& group);
  void CheckEnd(const trainer::StartEnd& end, const trainer::Start& start);

  const ElasticSettings settings_;
  const ElasticFault fault_;
  std::mt19937_64 random_;
  double risk_ = 0;  // that a rank dies at one of the points where it may
  core::Time now_ = core::Time::FromNanoseconds(1);
  std::unique_ptr<service::ScaleRequests> daemon_;
  service::ScaleRequests::Sessions attached_;
  std::unique_ptr<trainer::HandoverMemory> memory_;
  std::unique_ptr<trainer::Course> course_;
  std::map<std::string, std::vector<uint64_t>> kept_;  // by job: the committed step of each rank
  uint64_t promised_ = 0;  // the last step that all ranks of a group had committed
  std::optional<Open> open_;
  std::string wrong_;
  ElasticTally* tally_ = nullptr;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_ELASTIC_ELASTIC_RUN_H_
