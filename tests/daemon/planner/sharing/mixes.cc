#include "tests/daemon/planner/sharing/mixes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/counter_random.h"

namespace geminid::planner {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  double Unit() { return base::UnitInterval(base::RandomBits(seed_, drawn_++)); }
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  std::size_t Below(std::size_t count) {
    return std::min(static_cast<std::size_t>(Unit() * static_cast<double>(count)), count - 1);
  }

 private:
  const std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

// Goodput grows with ranks^`scaling`. A job below its whole memory moves chunks over the link, and
// its share of the link decides the cost. One job in four has a jump in its goodput: below some
// number of ranks it is three times slower than the curve, which is not concave.
std::vector<GoodputRow> MakeRows(Random& random) {
  const double scaling = random.Between(0.4, 1);
  const double whole_gib = random.Between(10, 75);    // a rank's whole memory
  const double link_need = random.Between(0.1, 1.5);  // of moving chunks, beside computation
  const bool has_step = random.Below(4) == 0;
  const std::uint64_t step_ranks = has_step ? 2 : 0;
  std::vector<GoodputRow> rows;
  for (const std::uint64_t ranks : {1, 2, 4, 8}) {
    for (const double part : {0.4, 1.0}) {
      const auto memory = static_cast<std::uint64_t>(part * whole_gib) * kGiB * ranks;
      const std::uint64_t link = part < 1 ? ranks * 40'000'000'000 : ranks * 2'000'000'000;
      double goodput = std::pow(static_cast<double>(ranks), scaling);
      if (part < 1) goodput /= 1 + link_need * (1 - part);
      if (ranks < step_ranks) goodput /= 3;
      rows.push_back({{memory, ranks, link}, goodput});
    }
  }
  return rows;
}

}  // namespace

Mix MakeMix(std::uint64_t seed, const MixOptions& options) {
  Random random(seed);
  Mix mix;
  const std::size_t jobs =
      options.least_jobs + random.Below(options.most_jobs - options.least_jobs + 1);
  double came = 0;
  Share guaranteed;
  for (std::size_t j = 0; j < jobs; ++j) {
    SharingJob job = {.id = j + 1, .rows = MakeRows(random), .since = came};
    double best = 0;
    for (const GoodputRow& row : job.rows) best = std::max(best, row.goodput);
    // Ten minutes to some hours at the job's best row.
    const double seconds = 600 * std::exp(random.Between(0, 3));
    job.remaining = best * seconds;
    if (!options.together) came += seconds * random.Between(0, 0.8);
    if (options.ranked) {
      job.priority = static_cast<std::int32_t>(random.Below(3)) - 1;
      const GoodputRow& row = job.rows[random.Below(4)];
      if (random.Below(3) == 0 && guaranteed.ranks + row.share.ranks <= kNode.ranks / 2 &&
          guaranteed.memory_bytes + row.share.memory_bytes <= kNode.memory_bytes / 2 &&
          guaranteed.link_bytes_per_second + row.share.link_bytes_per_second <=
              kNode.link_bytes_per_second / 2) {
        job.guarantee = row.share;
        guaranteed.ranks += row.share.ranks;
        guaranteed.memory_bytes += row.share.memory_bytes;
        guaranteed.link_bytes_per_second += row.share.link_bytes_per_second;
      }
    }
    mix.jobs.push_back(std::move(job));
  }
  return mix;
}

}  // namespace geminid::planner
